#!/usr/bin/env python3
"""make_onnx.py -- ONNX node tests of Attention and RotaryEmbedding, run by ONNX's reference evaluator in float64.

The nodes and inputs come from ONNX's node tests: this script runs their exporters and intercepts their `expect`.
Inputs are converted to float64 before the reference evaluator runs, so float32 does not limit the numbers.

An Attention node becomes a command line as follows. A boolean attn_mask is --mask, a float one --bias dense. Past keys
are put before the keys, and their number is --q-offset. nonpad_kv_seqlen is --lengths, and if the node is causal or has
a window, also a q_offset of nonpad - Lq for each batch entry. Inputs (B,L,H*D) become (B,H,L,D). qk_matmul_output in
mode 3 is the weights.

ONNX rotates with tables of cosines and sines; this script passes the tables for base 10000, as in the contract.

SPDX-License-Identifier: Apache-2.0
"""
import zlib

import numpy as np
import onnx
import torch
from onnx import helper
from onnx.backend.test.case.node import attention as exporters
from onnx.reference import ReferenceEvaluator

from common import Family, heads, randn, seed

F = Family("onnx")
TOL = 1e-12
CHOSEN = """4d 4d_gqa 4d_diff_heads_sizes 4d_scaled 4d_causal 4d_diff_heads_sizes_causal 4d_attn_mask 4d_attn_mask_3d
4d_attn_mask_4d_causal 4d_attn_mask_bool 4d_attn_mask_bool_4d 4d_softcap 4d_softcap_neginf_mask 3d_gqa_causal
3d_diff_heads_sizes_attn_mask 4d_causal_with_past_and_present 4d_with_qk_matmul_softmax
4d_gqa_causal_nonpad_decode 4d_causal_nonpad_continued_prefill 4d_causal_nonpad_negative_offset_structural_empty
4d_causal_nonpad_attn_mask_composition causal_boolmask_nan_robustness 23_boolmask_fullymasked_row_nan_robustness
24_fullymasked_qk_matmul_output_mode3_zero local_window bidirectional_window local_window_rank1_boolean_mask
local_window_with_past local_window_ext_cache_rank3_head_mask 3d_local_window local_window_gqa_rank4_mask""".split()


def caught():
    """Return {name: (node, inputs by the operator's input names, ...)} of every exporter of Attention."""
    found = {}

    def expect(node, inputs, outputs, name, **settings):
        found[name.removeprefix("test_attention_")] = (node, inputs, settings)
    exporters.expect = expect
    for method in dir(exporters.Attention):
        if method.startswith("export"):
            np.random.seed(zlib.crc32(method.encode()))  # the exporters use numpy's global generator
            getattr(exporters.Attention, method)()
    return found


def run(node, inputs, opset):
    """Return the outputs of one node, in the type of its inputs."""
    names = [n for n in node.input if n]
    types = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in zip(names, inputs)}
    graph = helper.make_graph([node], "case", [helper.make_tensor_value_info(n, types[n], list(x.shape))
                                               for n, x in zip(names, inputs)],
                              [helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, None) for n in node.output
                               if n])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    answers = ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
    return dict(zip([n for n in node.output if n], answers))


def attention(name, node, inputs, settings):
    slots = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    inputs = [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs]
    given, rest = {}, list(inputs)
    for slot, used in zip(slots, node.input):
        if used:
            given[slot] = rest.pop(0)
    opset = next((o.version for o in settings.get("opset_imports", []) if o.domain == ""),
                 onnx.defs.onnx_opset_version())
    answers = run(node, inputs, opset)
    attr = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    t = {n: torch.from_numpy(np.array(x)) for n, x in given.items()}
    out = torch.from_numpy(answers[node.output[0]])
    if t["Q"].dim() == 3:
        for n, h in (("Q", "q_num_heads"), ("K", "kv_num_heads"), ("V", "kv_num_heads")):
            t[n] = heads(t[n], attr[h])
        out = heads(out, attr["q_num_heads"])
    if "past_key" in t:
        t["K"], t["V"] = torch.cat([t["past_key"], t["K"]], 2), torch.cat([t["past_value"], t["V"]], 2)
    arrays, words = {"q": t["Q"], "k": t["K"], "v": t["V"]}, []
    placed = attr.get("is_causal", 0) or attr.get("left_window_size", -1) >= 0 or attr.get("right_window_size", -1) >= 0
    if "scale" in attr:
        # the evaluator multiplies q and k by the square root of the scale, computed in float32
        words.append("--scale %.17g" % float(np.sqrt(np.float32(attr["scale"])).astype(np.float64) ** 2))
    if attr.get("softcap", 0):
        words.append("--softcap %.17g" % attr["softcap"])
    if attr.get("is_causal", 0):
        words.append("--causal")
    if attr.get("left_window_size", -1) >= 0 or attr.get("right_window_size", -1) >= 0:
        words.append("--window %d,%d" % (attr.get("left_window_size", -1), attr.get("right_window_size", -1)))
    if "attn_mask" in t:
        mask = t["attn_mask"]
        short = t["K"].shape[2] - mask.shape[-1]
        if short:                                       # in ONNX, keys beyond the end of the mask are masked
            mask = torch.nn.functional.pad(mask, (0, short), value=False if mask.dtype == torch.bool else float("-inf"))
        arrays["pairs"] = mask
        words.append("--mask pairs" if mask.dtype == torch.bool else "--bias dense,bias=pairs")
    if "past_key" in t and placed:
        words.append("--q-offset %d" % t["past_key"].shape[2])
    if "nonpad_kv_seqlen" in t:
        arrays["valid"] = t["nonpad_kv_seqlen"]
        words.append("--lengths valid")
        if placed:
            arrays["first"] = t["nonpad_kv_seqlen"] - t["Q"].shape[2]
            words.append("--q-offset first")
    want = {"out": out}
    if attr.get("qk_matmul_output_mode", 0) == 3:
        want["weights"] = torch.from_numpy(answers[node.output[3]])
        words.append("--weights")
    F.case("onnx_attention_" + name, TOL, " ".join(words), arrays, want)


def rotary(name, interleaved=0, dim=0, offset=0, causal=0):
    """Run RotaryEmbedding on queries and keys, then Attention."""
    name = "onnx_rotary_" + name
    seed(name)
    B, H, Lq, Lk, D = 2, 2, 5, 5 + offset, 8
    n = dim or D
    q, k, v = randn(B, H, Lq, D), randn(B, H, Lk, D), randn(B, H, Lk, D)
    angle = np.arange(64)[:, None] * 10000.0 ** (-np.arange(0, n, 2) / n)
    settings = {"interleaved": interleaved}
    if dim:
        settings.update(rotary_embedding_dim=dim, num_heads=H)
    turn = lambda x, first: run(helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"], **settings),
                                [x.numpy(), np.cos(angle), np.sin(angle),
                                 np.broadcast_to(first + np.arange(x.shape[2]), (B, x.shape[2])).copy()], 23)["y"]
    past = [] if not offset else [k[:, :, :offset], v[:, :, :offset]]
    rotated = turn(k, 0)
    node = helper.make_node("Attention", ["q", "k", "v"] + (["", "pk", "pv"] if past else []),
                            ["y"] + (["nk", "nv"] if past else []), is_causal=causal)
    values = [turn(q, offset), rotated[:, :, offset:], v[:, :, offset:].numpy()]
    if past:
        values += [rotated[:, :, :offset], past[1].numpy()]
    out = run(node, [np.ascontiguousarray(x) for x in values], 24)["y"]
    F.case(name, TOL, "--rope dim=%d,layout=%s%s%s" % (n, "interleaved" if interleaved else "half",
                                                       " --causal" if causal else "",
                                                       " --q-offset %d" % offset if offset else ""),
           {"q": q, "k": k, "v": v}, {"out": torch.from_numpy(out)})


if __name__ == "__main__":
    tests = caught()
    for name in CHOSEN:
        attention(name, *tests[name])
    rotary("half")
    rotary("interleaved", interleaved=1)
    rotary("partial", dim=4, causal=1)
    rotary("partial_interleaved", interleaved=1, dim=4)
    rotary("cached", offset=3, causal=1)
    F.finish()
