"""The options of a call of relpos.attention as text and tensors, which the schema of a torch operator supports. Each
line of the text is "name|value|places" for one option. The places are indices into the operator's list of tensors, or
"-" for an absent array of a term. q_offset and seed change from call to call, so they are passed as integers; in the
text they would cause a new trace each time. _operator.py writes the text.

SPDX-License-Identifier: Apache-2.0"""
import functools
import itertools

from . import _core, _terms

TERMS = ("bias", "rope", "relkey", "relval", "sink")
SOFTCAPS = ("softcap", "softcap_after")  # numbers with gradients
MASKS = {
    name: (numbers, array)
    for name, numbers, array in iter(map(_core.mask_info, itertools.count(1)).__next__, None)
}
NUMBERS = [name for name, (n, _) in MASKS.items() if n]
AS_INTEGER = "given"
_VALUES = {"None": None, "True": True, "False": False}


@functools.lru_cache(256)
def read(text):
    """Parse encoded options into a list of (name, value, places)."""
    found = []
    for line in text.splitlines():
        name, value, places = line.split("|")
        found.append((name, value, [None if n == "-" else int(n) for n in places.split(",") if n]))
    return found


def _value(name, text):
    """Decode the value of an option."""
    if name in NUMBERS:
        found = [int(x) if x else None for x in text.split(",")]
        return found[0] if MASKS[name][0] == 1 else tuple(found)
    return _VALUES[text] if text in _VALUES else _terms._value(text)


def options_of(text, arrays, q_offset, seed):
    """Decode a call into the options of _core.attention, in order."""
    options = dict.fromkeys(_core.NAMES)
    options |= {"seed": seed % 2**64, "precision": "highest"}
    for name, value, places in read(text):
        if value == AS_INTEGER:
            options[name] = q_offset
            continue
        given = [None if n is None else arrays[n] for n in places]
        if name in TERMS:
            options[name] = (*(options[name] or ()), _terms._load(value, tuple(given)))
        else:
            options[name] = given[0] if given else _value(name, value)
    return options


def drops(text):
    """Return true if a call has dropout."""
    return any(name == "dropout" and (places or _value(name, value)) for name, value, places in read(text))


def requested(text):
    """Return the names of the options that are True, such as "return_weights" and "summary"."""
    return {name for name, value, _ in read(text) if value == "True"}


@functools.lru_cache(256)
def places_of(text):
    """Return {place: (argument, term, name)} of each array, such as ("T5(table)", 0, "table"). `term` is the number of
    the term, in the order in which _core reads them; softcaps follow the terms. term and name are None for arrays that
    have no gradient."""
    found = {}
    for name, _, places in read(text):
        learned = (count_terms(text), name) if name in SOFTCAPS else (None, None)
        found |= {place: (name, *learned) for place in places if name not in TERMS}
    for count, (_, value, places) in enumerate(_of_terms(text)):
        kind = _terms.TERMS[value.partition(",")[0]]
        for place, array in zip(places, _terms._BY_CLASS[kind]["arrays"]):
            if place is not None:
                name, learned = array["name"], array["use"] == "learned"
                found[place] = f"{kind.__name__}({name})", count if learned else None, name if learned else None
    return found


# The axes of an array of an option, of which the first is the batch.
_RANKS = {"key_mask": 2, "mask": 4, "lengths": 1, "segments": 2, "starts": 2, "ends": 2, "q_offset": 1}


@functools.lru_cache(256)
def ranks_of(text):
    """Return {place: number of axes} of each array that may differ between the entries of a batch, which then has the
    batch as its first axis."""
    found = {place: _RANKS.get(name) for name, _, places in read(text) if name not in TERMS for place in places}
    for _, value, places in _of_terms(text):
        for place, array in zip(places, _terms._BY_CLASS[_terms.TERMS[value.partition(",")[0]]]["arrays"]):
            shape = array["shape"]
            key, condition, shapes = shape.partition(" ? ")
            if condition:  # "axes ? [B?, axes, L] : [B?, L]"
                shape = shapes.split(" : ")[f"{key}=" not in value]
            found[place] = shape.count(",") + 1 if shape.startswith("[B") else None
    return {place: rank for place, rank in found.items() if rank is not None}


def unbroadcast_of(text):
    """Return the places of the arrays that must have an element for each entry of the batch."""
    return {place for _, value, places in _of_terms(text)
            for place, array in zip(places, _terms._BY_CLASS[_terms.TERMS[value.partition(",")[0]]]["arrays"])
            if array["shape"].startswith("[B,")}


def shares_entries(text):
    """Return true if batch entries share those of an array, as in Dense(bias, tile=2)."""
    for _, value, _ in _of_terms(text):
        for array in _terms._BY_CLASS[_terms.TERMS[value.partition(",")[0]]]["arrays"]:
            axis = array["shape"].partition("?")[0]  # "[B/interleave/tile"
            if axis.startswith("[B/") and any(f",{key}=" in value for key in axis.split("/")[1:]):
                return True
    return False


def _of_terms(text):
    """Return the lines of terms, in the order in which _core reads them."""
    return sorted((line for line in read(text) if line[0] in TERMS), key=lambda line: TERMS.index(line[0]))


def count_terms(text):
    """Return the number of terms of a call."""
    return len(_of_terms(text))


def learned_of(text):
    """Return {place: (term, name)} of each learned array."""
    return {place: (term, name) for place, (_, term, name) in places_of(text).items() if name is not None}
