"""Run both sides of each row of the tables in docs/migrate.md, and the calls in docs/start.md and docs/hf.md.

SPDX-License-Identifier: Apache-2.0"""
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import relpos

root = Path(__file__).parents[2]
sys.path.insert(0, str(root / "docs"))
import snippets  # noqa: E402
from snippets import B, D, H, M, N, NAMES, q, k, v  # noqa: E402

ROWS = snippets.rows()


def of(section):
    found = [row for row in ROWS if row.section == section]
    assert found
    return pytest.mark.parametrize("row", found, ids=lambda row: row.here)


def agree(row, want):
    np.testing.assert_allclose(snippets.here(row), want, rtol=1e-5, atol=1e-5)


def attend(q, k, v, bias):
    """Compute attention in NumPy. -inf in the bias masks a pair."""
    s = q @ k.swapaxes(-1, -2) / np.sqrt(D) + bias
    w = np.exp(s - s.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True) @ v


@pytest.fixture
def tensors():
    torch = pytest.importorskip("torch")
    return {"torch": torch, **{name: torch.from_numpy(np.asarray(a)) for name, a in NAMES.items()
                               if isinstance(a, np.ndarray)}}


def flat(a):
    """Reshape (B, H, N, D) to (B, N, H D)."""
    return a.transpose(1, 2).flatten(2)


def heads(a):
    return a.unflatten(-1, (H, D)).transpose(1, 2).detach().numpy()


@of("transformers: T5Attention")
def test_t5(row, tensors):
    torch, t5 = tensors["torch"], pytest.importorskip("transformers.models.t5.modeling_t5")
    config = {name: t5.T5Config(d_model=H * D, num_heads=H, d_kv=D, is_decoder=name == "decoder", dropout_rate=0,
                                attn_implementation="eager") for name in ("encoder", "decoder")}

    def layer(*args):
        module = t5.T5Attention(*args, layer_idx=0).double()
        with torch.no_grad():
            for project in (module.q, module.k, module.v, module.o):
                project.weight.copy_(torch.eye(H * D))
            if module.has_relative_attention_bias:
                module.relative_attention_bias.weight.copy_(tensors["weight"])
        return lambda *a, **o: module(*a, **o)[0]

    lowest, zero = torch.tensor([torch.finfo(torch.float64).min, 0.0], dtype=torch.float64)
    full = torch.from_numpy(relpos.T5(NAMES["weight"]).matrix(N))[None]
    names = {"T5Attention": layer, **config, "x": flat(tensors["x"]), "memory": flat(tensors["memory"]),
             "position_bias": full,
             "causal": torch.where(tensors["upper"], lowest, zero)[None, None],
             "padding": torch.where(tensors["keep"], zero, lowest)[:, None, None]}
    agree(row, heads(eval(row.there[0], names)))


@of("torch.nn.MultiheadAttention")
def test_multihead(row, tensors):
    torch = tensors["torch"]
    module = torch.nn.MultiheadAttention(H * D, H, batch_first=True).double()
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(H * D).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(H * D))
    x = flat(tensors["x"])
    agree(row,
          heads(eval(f"module(x, x, x, need_weights=False, {row.there[0]})[0]", {**tensors, "module": module, "x": x})))


@of("FlexAttention")
def test_flex(row, tensors):
    torch = tensors["torch"]
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    y, at = np.divmod(np.arange(N), 6)
    index = (y[:, None] - y + 3) * 11 + at[:, None] - at + 5  # as in Swin: query - key
    buckets = torch.from_numpy(relpos.bucket(range(-N, N + 1)))
    names = {**tensors, "bucket": lambda r: buckets[r + N], "index": torch.from_numpy(index)}
    options = {}
    for code in row.there:
        if "score" in code:
            options["score_mod"] = eval(f"lambda score, b, h, q_idx, kv_idx: {code}", names)
        else:
            options["block_mask"] = flex.create_block_mask(eval(f"lambda b, h, q_idx, kv_idx: {code}", names), B, H, N,
                                                           N, "cpu")
    agree(row, flex.flex_attention(*(tensors[n] for n in "qkv"), **options).numpy())


@of("xformers")
def test_xformers(row, tensors):
    biases = pytest.importorskip("xformers.ops.fmha.attn_bias")
    bias = eval(row.there[0], {**vars(biases), **tensors, "N": N, "M": M})
    queries = {"q[:, :, -M:]": q[:, :, -M:], "q[:, :, :M]": q[:, :, :M]}.get(row.here.partition(", k")[0], q)
    if hasattr(bias, "q_seqinfo"):  # all sequences of the batch, concatenated
        packed = [a.transpose(1, 0, 2, 3).reshape(1, H, -1, D) for a in (queries, k, v)]
        want = attend(*packed, bias.materialize((packed[0].shape[2], B * N)).numpy())
        want = want.reshape(H, B, -1, D).swapaxes(0, 1)
    else:
        want = attend(queries, k, v, bias.materialize((1, H, queries.shape[2], N)).numpy())
    agree(row, want)


def rotate(x, p):
    """Rotate as RotaryEmbedding(D).apply_rope of symm_learning does: channels 2c and 2c + 1 form a complex number."""
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * p[:, None] / 10000 ** (np.arange(0, D, 2) / D))
    return np.stack((turned.real, turned.imag), -1).reshape(x.shape)


@of("symm_learning")
def test_symm_learning(row):
    """Compare the calls for symm_learning with their formulas."""
    if "=" not in row.there[0]:  # this row returns the queries and keys with their positions applied
        return agree(row, attend(*eval(row.there[0], {"apply_rope": rotate, **NAMES}), v, 0))
    given = eval(f"dict({row.there[0]})", NAMES)
    far, places, all_known = given["max_distance"], np.arange(N), np.ones(N, bool)
    r = given.get("q_positions", places)[:, None] - given.get("k_positions", places)
    bias = -NAMES["rel_bias"][np.trunc(np.clip(r, -far, far)).astype(int) + far]
    bias = bias * given.get("q_position_mask", all_known)[:, None] * given.get("k_position_mask", all_known)
    agree(row, attend(q, k, v, np.where(NAMES["upper"] & given.get("is_causal", False), -np.inf, bias)))


def starts(language, heading):
    """The code block in a tab of docs/start.md has at most three lines."""
    part = (root / "docs/start.md").read_text().partition(f"{{tab-item}} {heading}\n")[2]
    block = re.search(rf"```{language}\n(.*?)```", part, re.S)[1]
    assert block.count("\n") <= 3
    return block


def test_start_torch():
    pytest.importorskip("torch")
    names = {}
    exec(starts("python", "PyTorch"), names)
    assert names["table"].grad.shape == (32, 8)


def test_start_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    transformers.T5Model(config).save_pretrained(tmp_path)
    names = {}
    exec(starts("python", "Hugging Face").replace("google-t5/t5-small", str(tmp_path)), names)
    assert names["model"].config._attn_implementation == "relpos"


def test_page_of_transformers(tmp_path, capsys):
    """Run the block of docs/hf.md with a small BLOOM. It prints what eager attention writes."""
    torch, transformers, tokenizers = map(pytest.importorskip, ("torch", "transformers", "tokenizers"))
    torch.manual_seed(1)
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs/hf.md").read_text(), re.S)
    assert len(blocks) == 1
    config = transformers.BloomConfig(vocab_size=40, hidden_size=16, n_layer=2, n_head=4, eos_token_id=None,
                                      initializer_range=1.0)
    transformers.BloomForCausalLM(config).save_pretrained(tmp_path)
    words = {"?": 0, "The": 1, "distance": 2, "between": 3, "two": 4, "words": 5, **{f"w{n}": n for n in range(6, 40)}}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain).save_pretrained(tmp_path)
    written = []
    for implementation in ("relpos", "eager"):
        names = {}
        block = blocks[0].replace("bigscience/bloom-560m", str(tmp_path))
        exec(block.replace('"relpos"', f'"{implementation}"'), names)
        assert names["model"].config._attn_implementation == implementation
        written.append(capsys.readouterr().out)
    assert written[0] == written[1] and written[0].startswith("The distance between two words ")
    assert len(set(written[0].split())) > 8


PROGRAM = next((p for p in [root / "build/dev/relpos", root / "build/release/relpos"] if p.exists()), None)


@pytest.mark.skipif(PROGRAM is None, reason="the program has not been built")
def test_start_command_line(tmp_path):
    (tmp_path / "tests").symlink_to(root / "tests")
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-e", "-c", starts("sh", "Command line")], cwd=tmp_path, env={**os.environ, "PATH": path},
                   check=True,
                   stdout=subprocess.DEVNULL)
    assert (tmp_path / "alibi.png").exists() and "drel_bias" in np.load(tmp_path / "grads.npz")
