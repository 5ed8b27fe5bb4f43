"""What relpos.t5.proteins does: records in, arrays or files out.  SPDX-License-Identifier: Apache-2.0"""
import contextlib
import os
import zipfile

import numpy as np

from .._models import part
from .._progress import Shown
from . import _core
from ._encode import pooled

_BATCH = 8192  # tokens that are computed together, unless one protein is longer


def embed(model, fasta, output, family, pool, dtype, skip_bad, progress):
    if np.dtype(dtype) not in (np.float16, np.float32):
        raise ValueError(f'dtype is {dtype!r}; it must be "float16" or "float32"')
    suffix = None if output is None else os.path.splitext(os.fspath(output))[1]
    if suffix not in (None, ".npz", ".h5"):
        raise ValueError(f"output ends in {suffix!r}; it must end in .npz or .h5")
    if family is not None and not isinstance(family, str):
        raise TypeError(f'family is {family!r}; it must be "prott5", "prostt5", "ankh" or None')
    bad = None if skip_bad is None else []
    records = _checked(model, fasta, family, bad) if isinstance(fasta, dict) else _fasta(fasta, bad)
    if bad is not None:
        _write_bad(os.fspath(skip_bad), bad)
    with Shown(progress, "proteins") as report:
        made = _embedded(model, records, family, pool, np.dtype(dtype), report)
        if output is None:
            found = {key: array for key, array, _ in made}
            return {key: found[key] for key in records}
        return (_write_npz if suffix == ".npz" else _write_h5)(os.fspath(output), made)


def _refuse(bad, line, name, error):
    """Raise the error of a record, or add the record to the list of bad ones."""
    if bad is None:
        raise error
    bad.append((line, name, str(error)))


def _write_bad(path, bad):
    with _replaced(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for line, *texts in bad:
            texts = ("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text) for text in texts)
            file.write("\t".join([str(line), *texts]) + "\n")


def _fasta(path, bad):
    """Read a FASTA file. Return {key: residues}."""
    file, records, name = _core.fasta(os.fsencode(path)), {}, os.fspath(path)
    while True:
        try:
            record = _core.fasta_next(file)
        except ValueError as error:
            refused = None if bad is None else _core.fasta_skip(file)
            if refused is None:
                raise
            line, header = refused
            _refuse(bad, line, header.decode("utf-8", "backslashreplace"), str(error).removeprefix(f"{name}: "))
            continue
        if record is None:
            return records
        line, header, residues = record
        key = header.decode().replace("/", "_").replace(".", "_")
        if key in records:
            why = f"line {line}: the name {key} occurs twice (rename one)"
            _refuse(bad, line, header.decode(), why if bad is not None else ValueError(f"{name}: {why}"))
        else:
            records[key] = residues


def _bytes(residues):
    return residues.encode() if isinstance(residues, str) else residues


def _checked(model, records, family, bad):
    """Return the records of a dict. With a list of bad records, leave out those."""
    if bad is None:
        return dict(records)
    good = {}
    for n, (key, residues) in enumerate(records.items()):
        try:
            _core.residues(model._handle, family, [_bytes(residues)])
        except ValueError as error:
            _refuse(bad, n + 1, key, error)
        else:
            good[key] = residues
    return good


def _plain(residues):
    """Return residues in upper case and without gaps, as bytes: equal proteins become equal."""
    return _bytes(residues).upper().translate(bytes.maketrans(b".", b"*"), b"- \t\n\v\f\r")


def _embedded(model, records, family, pool, dtype, report):
    """Compute proteins, the longest first. Yield (key, array, number of replaced residues). Equal ones are computed
    once."""
    groups = {}
    for key in records:
        groups.setdefault(_plain(records[key]), []).append(key)
    order = sorted(groups, key=lambda residues: -len(residues))
    total, done = max(sum(len(one) for one in order), 1), 0
    while order:
        tokens, n = 0, 0
        while n < len(order) and (n == 0 or tokens + len(order[n]) + 2 <= _BATCH):
            tokens += len(order[n]) + 2
            n += 1
        batch, order = order[:n], order[n:]
        texts = [_bytes(records[groups[residues][0]]) for residues in batch]
        proteins, counts = _core.residues(model._handle, family, texts)
        lengths, replaced = zip(*counts)
        hidden = np.empty((sum(lengths), model.config.d_model), np.float32)
        _core.encode_residues(model._handle, proteins, hidden, part(report, done, done + len(hidden), total))
        done += len(hidden)
        for residues, rows, others in zip(batch, np.split(hidden, np.cumsum(lengths)[:-1]), replaced):
            array = (pooled(rows, "mean") if pool else rows).astype(dtype)
            for key in groups[residues]:
                if not np.isfinite(array).all():
                    raise ValueError(f'{key}: a number does not fit float16 (use dtype="float32")')
                yield key, array.copy(), others


@contextlib.contextmanager
def _replaced(path):
    """Give the name of a temporary file that becomes `path`, or is removed after an exception."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def _write_npz(path, made):
    total = 0
    with _replaced(path) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
        for key, array, others in made:
            with archive.open(key + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
            total += others
    return total


def _write_h5(path, made):
    try:
        import h5py
    except ImportError:
        raise ImportError("proteins: writing .h5 needs the package h5py (pip install h5py, or write .npz)") from None
    total = 0
    with _replaced(path) as temporary, h5py.File(temporary, "w") as file:
        for key, array, others in made:
            file.create_dataset(key, data=array)
            total += others
    return total
