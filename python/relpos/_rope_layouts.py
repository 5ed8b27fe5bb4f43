"""RoPE on several axes, by the names of models. A row of LAYOUTS says which axis and which frequency each pair has.

SPDX-License-Identifier: Apache-2.0"""
import difflib
import math
from typing import NamedTuple

import numpy as np

from . import _terms


class _Layout(NamedTuple):
    """pairs     pairs(channels, sections) returns the axis and the exponent of each pair, whose frequency is
                 base^(-exponent), or with each_channel of each channel
    axes      the number of axes, or None for as many as sections
    pairing   the layout of RoPE
    base      the base that all models of the row have, also one for each axis, or None
    sections  the numbers of pairs in the class, if a configuration has no others
    turn      factor of all frequencies
    also      other model types of transformers with these positions, without "_text" """

    pairs: object
    axes: int
    pairing: str
    base: object = None
    sections: tuple = None
    turn: float = 1.0
    each_channel: bool = False
    also: str = ""


def _divided(channels, by, of="channels"):
    if channels % by:
        raise ValueError(f"rope_layout: dim is {channels}; it must be a multiple of {by}")
    return channels // by


def _summed(channels, sections):
    n = _divided(channels, 2)
    if sum(sections) != n:
        raise ValueError(f"rope_layout: sections {tuple(sections)} are {sum(sections)} pairs, but dim = {channels} has "
                         f"{n}; pass the mrope_section of the config, and as dim its rotated channels")
    return n


def _chunks(channels, sections):
    """Time, row, column, time, …: as many neighbouring pairs as sections says."""
    n = _summed(channels, sections)
    return [axis % 3 for axis, count in enumerate(sections) for _ in range(count)], [c / n for c in range(n)]


def _interleaved(channels, sections):
    """Time, row, column, time, … by turns, until an axis has its section; then time. As in transformers, the first
    section is not read, and a section may end beyond the last pair."""
    n = _divided(channels, 2)
    return [c % 3 if c < 3 * sections[c % 3] else 0 for c in range(n)], [c / n for c in range(n)]


def _ernie(channels, sections):
    """Row, column, row, column, …, then time. Positions begin with time, sections with rows."""
    n = _summed(channels, sections)
    if sections[0] != sections[1]:
        raise ValueError(f"rope_layout: sections are {tuple(sections)}; rows and columns, the first two, must have as "
                         "many pairs")
    time = n - sections[2]
    return [1 + c % 2 if c < time else 0 for c in range(n)], [c / n for c in range(n)]


def _turns(channels, _):
    """Row and column by turns, with falling frequencies."""
    n = _divided(channels, 4) * 2
    return [c % 2 for c in range(n)], [c / n for c in range(n)]


def _halves(channels, _, axes=(0, 1)):
    """The first half of the pairs has one axis, the second half the other, with the same frequencies."""
    m = _divided(channels, 4)
    return [axis for axis in axes for _ in range(m)], 2 * [k / m for k in range(m)]


def _swapped_halves(channels, _):
    return _halves(channels, _, (1, 0))


def _pixtral(channels, _):
    """Halves whose frequencies differ: the even ones for rows, the odd ones for columns."""
    m = _divided(channels, 4)
    return m * [0] + m * [1], [c / (2 * m) for first in (0, 1) for c in range(first, 2 * m, 2)]


def _kimi(channels, _):
    """Column and row by turns, each two with the same frequency."""
    m = _divided(channels, 4)
    return m * [1, 0], [k / m for k in range(m) for _ in range(2)]


def _thirds(channels, _):
    """Time, rows and columns with the same frequencies. The channels that three even parts leave do not rotate."""
    m = channels // 6
    if m == 0:
        raise ValueError(f"rope_layout: dim is {channels}; it must be 6 or more, 2 for each axis")
    return [axis for axis in range(3) for _ in range(m)], 3 * [k / m for k in range(m)]


def _sections(channels, sections):
    """Each axis has its section; the frequencies of the other pairs are 0."""
    n, rest = _divided(channels, 2), _divided(channels, 2) - sum(sections)
    if rest < 0 or len(sections) != 4:
        raise ValueError(f"rope_layout: sections are {tuple(sections)}; expected numbers of pairs for x, y, z and the "
                         f"residue, at most {n} together")
    return ([axis for axis, count in enumerate(sections) for _ in range(count)] + rest * [0],
            [k / count for count in sections for k in range(count)] + rest * [math.inf])


def _channel_chunks(channels, sections):
    """Neighbouring channels, twice as many as sections says, have one axis. The channels c and c + n of a pair have
    the same frequency, but may have different axes."""
    n = _summed(channels, sections)
    return ([axis for axis, count in enumerate(sections) for _ in range(2 * count)],
            [c % n / n for c in range(2 * n)])


def _tiled_thirds(channels, _):
    """Time, rows and columns. The frequencies of a third are repeated after all of them, not after each, so the two
    channels of a pair have different frequencies."""
    axis, exponent = _thirds(channels, _)
    m = len(axis) // 3
    return [a for a in range(3) for _ in range(2 * m)], 6 * exponent[:m]


LAYOUTS = {
    "qwen2_vl": _Layout(_chunks, 3, "half", None, (16, 24, 24), also="qwen2_5_vl qwen2_5_omni paddleocr_vl"),
    "qwen3_vl": _Layout(_interleaved, 3, "half", None, (24, 20, 20),
                        also="qwen3_vl_moe qwen3_omni_moe qwen3_5 qwen3_5_moe cosmos3_edge cohere_compass "
                        "qwen4_exp"),
    "hy_v4_vl": _Layout(_interleaved, 3, "interleaved", None, (12, 10, 10)),
    "glm4v": _Layout(_chunks, 3, "interleaved", None, (8, 12, 12), also="glm_ocr"),
    "glm4v_moe": _Layout(_chunks, 3, "half", None, (8, 12, 12), also="glm_image"),
    "ernie4_5_vl_moe": _Layout(_ernie, 3, "interleaved", None, (22, 22, 20), also="ernie4_5_vl"),
    "neomme": _Layout(_turns, 2, "half"),
    "qwen2_vl_vision": _Layout(_halves, 2, "half", 1e4,
                               also="qwen2_5_vl_vision qwen2_5_omni_vision qwen3_vl_vision qwen3_vl_moe_vision "
                               "qwen3_omni_moe_vision qwen3_5_vision qwen3_5_moe_vision qwen4_exp_vision glm4v_vision "
                               "glm4v_moe_vision glm_ocr_vision glm5_next_vision ernie4_5_vl_moe_vision "
                               "paddleocr_vl_vision exaone4_5_vision dots3_note_vision cohere_compass_vision mlcd "
                               "mlcd_vision "
                               "muse_spark_vision muse_glimmer_vision lfm3_vl_vision video_llama_3_vision"),
    "pixtral": _Layout(_pixtral, 2, "half", 1e4),
    "llama4_vision": _Layout(_halves, 2, "interleaved", 1e4),
    "sam3": _Layout(_halves, 2, "interleaved", 1e4, also="sam3_vit sam2_video sam3_tracker_video edgetam_video"),
    "inkling2_vision": _Layout(_swapped_halves, 2, "interleaved", 1e4),
    "kimi_k25_vision": _Layout(_kimi, 2, "half", 1e4),
    "step3p7_vision": _Layout(_swapped_halves, 2, "half", 1e4, also="step3p5_vision"),
    "dinov3": _Layout(_halves, 2, "half", 100.0, turn=2 * math.pi, also="dinov3_vit eomt_dinov3 sapiens2"),
    "minimax_m3_vl_vision": _Layout(_thirds, 3, "half", 1e4),
    "esmfold2": _Layout(_sections, 4, "half", (20.0, 20.0, 20.0, 1e4), (2, 2, 2, 10)),
    "hunyuan_vl": _Layout(_channel_chunks, None, "half", None, (16, 16, 16, 16), each_channel=True),
    "vjepa2": _Layout(_tiled_thirds, 3, "interleaved", 1e4, each_channel=True),
}
_BY_NAME = {name: row for first, row in LAYOUTS.items() for name in (first, *row.also.split())}

# Positions with other pairs than those of RoPE's layouts, and what to do instead.
OTHERS = {
    "gemma4_vision": "its pairs are within each half of the channels, which is no layout of RoPE; swap the second and "
                     "the third quarter of the channels of q and k, and use 'qwen2_vl_vision' with base=100 and the "
                     "positions (column, row), in the order of the model's position_ids",
}


def _row(name):
    """Return the layout of a name."""
    key = str(name).lower().replace("-", "_").replace(".", "_")
    key = key.removesuffix("_text").removesuffix("_model")
    row = _BY_NAME.get(key)
    if row is not None:
        return row
    if key in OTHERS:
        raise ValueError(f"rope_layout: {name} has no layout: {OTHERS[key]}")
    plain = {name.replace("_", ""): name for name in (*OTHERS, *reversed(_BY_NAME))}  # qwen3vl of Qwen3VLTextModel
    bare = key.replace("_", "").removesuffix("model").removesuffix("text")
    near = [plain[x] for x in difflib.get_close_matches(bare, plain, 1)]
    raise ValueError(f"rope_layout: name is {name!r}{f'; did you mean {near[0]!r}?' if near else ''}; the layouts are "
                     f"{', '.join(LAYOUTS)}")


def _bases(name, base, row, axes):
    """Return the base of each axis, as numbers."""
    base = row.base if base is None else base
    if base is None:
        raise TypeError(f"rope_layout: base is missing; pass rope_theta of the config of {name}")
    if _terms.wants_gradient(base):
        raise TypeError("rope_layout: base requires a gradient, which the layout does not pass on; use .detach(), or "
                        "pass frequencies that follow from it to relpos.RoPE")
    bases = [float(b) for b in base] if isinstance(base, (tuple, list)) else axes * [float(base)]
    if len(bases) != axes or not all(0 < b < math.inf for b in bases):
        raise ValueError(f"rope_layout: base is {base!r}; expected a number above 0, or one for each of the "
                         f"{axes} axes")
    return bases


def _angles(positions, frequencies):
    """Return the angle of each channel, (L, channels) or (B, 1, L, channels)."""
    if positions is None:
        return None
    positions = positions if hasattr(positions, "shape") else np.asarray(positions)
    if len(positions.shape) not in (2, 3) or positions.shape[-2] != len(frequencies):
        raise ValueError(f"rope_layout: positions have shape {tuple(positions.shape)}, expected (A, L) or (B, A, L) "
                         f"with A = {len(frequencies)} axes")
    if hasattr(positions, "requires_grad"):
        positions = positions.double()
        frequencies = positions.new_tensor(frequencies)
    found = positions.swapaxes(-1, -2) @ frequencies
    return found if found.ndim == 2 else found[:, None]


def rope_layout(name, dim, *, positions=None, q_positions=None, k_positions=None, base=None, sections=None,
                first=0):
    """Return the RoPE on several axes of a published model: which axis and which frequency each pair of channels has,
    or the angle of each channel, where the channels of a pair have different ones.

    name         a model type of transformers, such as "qwen3_vl" or "qwen2_vl_vision". An error lists the layouts,
                 docs/recipes.md their models and axes. "-" and "." count as "_"
    dim          the channels that rotate: the width of a head, times partial_rotary_factor if the config has it
    positions    (A, L) or (B, A, L): a number for each of the A axes, in the order of the model's class; transformers
                 has (A, B, L) in texts, and (L, A) in images. Or q_positions and k_positions, as in RoPE
    base         rope_theta of the config, which language models need. Other layouts have the base of their models
    sections     mrope_section of the config; default that of the class
    first        the first channel that rotates

    >>> import numpy as np, relpos
    >>> y, x = np.divmod(np.arange(12), 4)
    >>> relpos.rope_layout("qwen2-vl-vision", 8, positions=np.stack([y, x]))
    relpos.RoPE(dim=8, axes=2, positions=int64[2, 12], frequencies=float64[2, 1, 4])
    >>> relpos.rope_layout("qwen3-vl", 12, base=5e6, sections=(2, 2, 2)).arrays["frequencies"].argmax(0)
    array([[0, 1, 2, 0, 1, 2]])
    """
    row = _row(name)
    if sections is not None and (row.sections is None or len(sections) < 3
                                 or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in sections)):
        raise ValueError(f"rope_layout: sections is {sections!r}; " + (
            f"the layout of {name} has none" if row.sections is None else "expected three or more numbers of pairs, "
            "mrope_section of the config"))
    if sections is None and row.sections and row.base is None and 2 * sum(row.sections) != dim:
        raise TypeError(f"rope_layout: sections is missing, and {row.sections} of {name} are for dim="
                        f"{2 * sum(row.sections)}; pass mrope_section of the config")
    sections = sections or row.sections
    axis, exponent = row.pairs(int(dim), sections)
    axes = row.axes or len(sections)
    bases = _bases(name, base, row, axes)
    frequencies = np.array([[row.turn * bases[a] ** -x if a == here else 0.0 for a, x in zip(axis, exponent)]
                            for here in range(axes)])
    given = {"positions": positions, "q_positions": q_positions, "k_positions": k_positions}
    options = {"layout": row.pairing, "first": first}
    if not row.each_channel:
        return _terms.TERMS["rope"](dim=2 * len(axis), frequencies=frequencies[:, None], **given, **options)
    if all(x is None for x in given.values()):
        raise TypeError(f"rope_layout: positions is missing; the angles of {name} are computed from it")
    given = {name.replace("positions", "angles"): _angles(x, frequencies) for name, x in given.items()}
    return _terms.TERMS["rope"](dim=len(axis), by_channel=True, **given, **options)
