"""relpos.t5.proteins and the command `relpos t5 proteins`, compared with the results of the families' own scripts in
tests/t5/data/proteins.
SPDX-License-Identifier: Apache-2.0"""
import gzip
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import relpos.t5

DATA = Path(__file__).resolve().parents[2] / "tests" / "t5" / "data" / "proteins"
FASTA = DATA / "proteins.fasta"
FAMILIES = ("prott5", "prostt5", "ankh")


def records():
    """read_fasta of prott5_embedder.py, after removing comments and stop codons."""
    found = {}
    for line in FASTA.read_text().replace("*", "").splitlines():
        if line.startswith(">"):
            key = line.replace(">", "").strip().replace("/", "_").replace(".", "_")
            found[key] = ""
        elif line.strip() and not line.startswith(";"):
            found[key] += "".join(line.split()).upper().replace("-", "")
    return found


def expected(family, name="expected.safetensors"):
    """Return {key: hidden states}. The file is safetensors with f32 arrays."""
    import json
    data = (DATA / family / name).read_bytes()
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:8 + size])["hidden"]
    begin, end = entry["data_offsets"]
    rows = np.frombuffer(data[8 + size + begin:8 + size + end], np.float32).reshape(entry["shape"])
    lengths = [len(one) for one in records().values()]
    return dict(zip(records(), np.split(rows, np.cumsum(lengths)[:-1])))


@pytest.mark.parametrize("family", FAMILIES)
def test_residues(family):
    found = relpos.t5.proteins(DATA / family, FASTA, dtype="float32")
    wanted = expected(family)
    assert list(found) == list(wanted)
    for key, rows in wanted.items():
        assert found[key].dtype == np.float32 and np.abs(found[key] - rows).max() < 2e-5
    half = relpos.t5.proteins(DATA / family, records())
    assert all((half[key] == rows.astype(np.float16)).all() for key, rows in found.items())


def test_esm(tmp_path):
    """`relpos proteins` with ESM-2, compared with EsmModel of transformers (tests/encoder/texts/protein)."""
    folder = DATA.parents[2] / "encoder" / "texts" / "protein"
    wanted = expected(folder, "proteins.safetensors")
    for pool in [], ["--pool"]:
        out = tmp_path / f"{len(pool)}.npz"
        subprocess.run([sys.executable, "-P", "-m", "relpos", "proteins", folder, FASTA, "-o", out, "--type", "f32",
                        "--dtype", "f32", *pool], check=True)
        found = np.load(out)
        assert sorted(found) == sorted(wanted)
        for key, rows in wanted.items():
            assert np.abs(found[key] - (rows.mean(0) if pool else rows)).max() < 4e-5


def test_pool_and_files(tmp_path):
    with relpos.t5.T5(DATA / "prott5") as model:
        found = relpos.t5.proteins(model, FASTA, pool=True, dtype="float32")
        for key, rows in expected("prott5").items():
            assert np.abs(found[key] - rows.mean(0)).max() < 2e-5
        (tmp_path / "x.fasta.gz").write_bytes(gzip.compress(FASTA.read_bytes()))
        assert relpos.t5.proteins(model, tmp_path / "x.fasta.gz", tmp_path / "x.npz") == 6
        rows = relpos.t5.proteins(model, FASTA)
        written = np.load(tmp_path / "x.npz")
        assert set(written) == set(rows) and all((written[key] == rows[key]).all() for key in rows)
        seen = []
        relpos.t5.proteins(model, {"a": "mk-t"}, progress=seen.append)
        assert seen[-1] == 1
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["x.fasta.gz", "x.npz"]


def test_command_writes_the_same(tmp_path):
    run(FASTA, tmp_path / "x.npz", "--dtype", "f32")
    written, rows = np.load(tmp_path / "x.npz"), relpos.t5.proteins(DATA / "prott5", FASTA, dtype="float32")
    assert set(written.files) == set(rows) and all((written[key] == rows[key]).all() for key in rows)


def test_equal_sequences_are_computed_once(tmp_path, monkeypatch):
    """Also with gaps, another case, or another stop. Every name gets the bits that it has alone."""
    texts = {"a": "MKTAYIAK", "b": "MKVL", "a again": "mkt-ayIAK", "c": "MKVX", "b again": "M K VL", "stop": "M*K",
             "other stop": "m.k"}
    with relpos.t5.T5(DATA / "prott5") as model:
        alone = {key: relpos.t5.proteins(model, {key: text}, dtype="float32")[key] for key, text in texts.items()}
        counts, residues = [], relpos.t5._core.residues
        monkeypatch.setattr(relpos.t5._core, "residues",
                            lambda handle, family, texts: (counts.append(len(texts)),
                                                           residues(handle, family, texts))[1])
        found = relpos.t5.proteins(model, texts, dtype="float32")
    assert sum(counts) == 4 and list(found) == list(texts)
    assert all((found[key] == alone[key]).all() for key in texts)
    found["a"][:] = 0  # the arrays are separate
    assert (found["a again"] == alone["a again"]).all()
    (tmp_path / "x.fasta").write_text("".join(f">{key}\n{text}\n" for key, text in texts.items()))
    assert ("computed 7 proteins of 34 residues; 3 have the residues of another" in run(tmp_path / "x.fasta", tmp_path
                                                                                        / "x.npz", "--dtype", "f32"))
    written = np.load(tmp_path / "x.npz")
    assert set(written.files) == set(texts) and all((written[key] == alone[key]).all() for key in texts)


def test_bad_records_are_left_out_and_listed(tmp_path):
    fasta, skips, listed = tmp_path / "x.fasta", tmp_path / "skips", tmp_path / "listed"
    fasta.write_bytes(b"\xef\xbb\xbf>a\nMK\n>b\nM1\n>c\n>d.1\nM\n>d/1\nK\n>e\tf\x01\nM\n>g\nML\n")
    run(fasta, tmp_path / "x.npz", "--skip-bad", listed)
    with relpos.t5.T5(DATA / "prott5") as model:
        found = relpos.t5.proteins(model, fasta, skip_bad=skips)
        assert list(found) == ["a", "d_1", "g"] == sorted(np.load(tmp_path / "x.npz").files)
        lines = [line.split("\t") for line in skips.read_text().splitlines()]
        assert [line[:2] for line in lines] == [["3", "b"], ["5", "c"], ["8", "d/1"], ["10", "e\\x09f\\x01"]]
        assert lines[0][2].startswith("line 4: the character '1' is not a residue") and "occurs twice" in lines[2][2]
        assert [line[:2] for line in lines] == [line.split("\t")[:2] for line in listed.read_text().splitlines()]
        with pytest.raises(ValueError, match="x.fasta: line 4: the character '1'"):
            relpos.t5.proteins(model, fasta)
        found = relpos.t5.proteins(model, {"a": "MK", "b": "M1", "c": "ML"}, tmp_path / "y.npz", skip_bad=skips)
        assert found == 0 and np.load(tmp_path / "y.npz").files == ["a", "c"]
        assert re.fullmatch(r"2\tb\tbyte 1 is 0x31, which is not a residue .*\n", skips.read_text())
        fasta.write_text("MKV\n")  # not a fault of a record
        with pytest.raises(ValueError, match="no header comes before it"):
            relpos.t5.proteins(model, fasta, skip_bad=skips)


def run(fasta, out, *options, wait=True):
    process = subprocess.Popen([sys.executable, "-P", "-m", "relpos", "t5", "proteins", DATA / "prott5", fasta, "-o",
                                out, *options],
                               stderr=subprocess.PIPE, text=True)
    if wait:
        said = process.communicate()[1]
        assert process.returncode == 0, said
        return said
    return process


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_interrupted(tmp_path, how):
    """NumPy opens the file that an interrupted run leaves, and another run completes it."""
    random = np.random.default_rng(0)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    fasta, out, part = tmp_path / "x.fasta", tmp_path / "x.npz", tmp_path / "x.npz.part"
    fasta.write_text("".join(f">p{k}\n{''.join(random.choice(letters, n))}\n"
                             for k, n in enumerate(random.integers(300, 800, 100))))
    process = run(fasta, out, "--threads", "1", wait=False)
    while process.poll() is None and not (part.exists() and part.stat().st_size > 20_000):
        time.sleep(0.002)
    process.send_signal(how)
    said = process.communicate()[1]
    if how != signal.SIGKILL and part.exists():
        assert process.returncode == 1 and re.search(r"stopped by a signal; \d+ proteins are in .*x.npz.part \(start "
                                                     r"it again", said)
        with np.load(part) as written:
            assert 0 < len(written.files) <= 100 and all(np.isfinite(written[key]).all() for key in written.files)
    run(fasta, out)
    run(fasta, tmp_path / "whole.npz")
    assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not part.exists()


@pytest.mark.parametrize("call, error, words", [
    (lambda: relpos.t5.proteins(DATA / "prott5", {"a": "M1"}), ValueError, "byte 1 is 0x31"),
    (lambda: relpos.t5.proteins(DATA / "prott5", DATA / "none.fasta"), OSError, "No such file"),
    (lambda: relpos.t5.proteins(DATA / "prott5", FASTA, family="esm"), ValueError, "is unknown"),
    (lambda: relpos.t5.proteins(DATA / "prott5", FASTA, "x.txt"), ValueError, "must end in .npz or .h5"),
    (lambda: relpos.t5.proteins(DATA / "prott5", FASTA, dtype="float64"), ValueError, "must be"),
    (lambda: relpos.t5.proteins(DATA.parent / "byt5", FASTA), ValueError, "not a model of proteins"),
])
def test_errors(call, error, words):
    with pytest.raises(error, match=re.escape(words)):
        call()
