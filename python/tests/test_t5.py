"""Compare relpos t5 with transformers token by token, on 240 sources of random tokens: greedy and beam search, f32.
Needs torch, transformers and the program: RELPOS_PROGRAM, or build/release/relpos or build/dev/relpos.

RELPOS_T5_MODEL=FOLDER replaces the random weights by a checkpoint with a tokenizer, and RELPOS_T5_LINES=FILE gives its
texts."""
import collections
import json
import os
import pathlib
import shutil
import subprocess

import oracle
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
N, NEW = 240, 16
SEARCHES = {
    "greedy": ({}, []),
    "beams": ({"num_beams": 4}, ["--beams", "4"]),
    "penalties": ({"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "length_penalty": 0.8,
                   "early_stopping": True},
                  ["--beams", "3", "--no-repeat-ngram", "2", "--repetition-penalty", "1.3", "--length-penalty", "0.8",
                   "--early-stopping", "true"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    named = os.environ.get("RELPOS_T5_MODEL")
    if named:
        return named
    path = tmp_path_factory.mktemp("t5")
    ends = list(range(1, 8))  # with random weights, these end tokens let targets end
    config = transformers.T5Config(vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=3, num_heads=5,
                                   feed_forward_proj="gated-gelu",
                                   tie_word_embeddings=False, decoder_start_token_id=0, eos_token_id=ends)
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "layer_norm" not in name:
                p.copy_(torch.randn_like(p) * (1 if "bias" in name else 0.3 if "shared" in name else 1.3
                                               / p.shape[-1] ** 0.5))
    model.save_pretrained(path)
    return path


def texts(tokenizer):
    lines = os.environ.get("RELPOS_T5_LINES")
    if lines:
        return [tokenizer(x).input_ids for x in pathlib.Path(lines).read_text().splitlines()]
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(8, 500, (int(torch.randint(1, 60, (1,), generator=draw)),), generator=draw).tolist()
            for _ in range(N)]


def both(folder, sources, settings, options):
    """Return the targets of transformers and of relpos."""
    torch.set_num_threads(1)  # the layers are too small to benefit from threads
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    relpos = oracle.program()
    out = subprocess.run([relpos, "t5", "generate", folder, "--tokens", "--type", "f32", "--batch", "16",
                          "--max-new-tokens", str(NEW), *options],
                         input="".join(" ".join(map(str, s)) + "\n" for s in sources), capture_output=True, text=True,
                         check=True).stdout
    found = [[int(t) for t in line.split()] for line in out.splitlines()]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    wanted = []
    for s in sources:
        ids = torch.tensor([s])
        with torch.no_grad():
            row = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
                                 **settings)[0].tolist()[1:]
        wanted.append(next((row[:k + 1] for k, t in enumerate(row) if t in ends), row))
    return wanted, found


@pytest.mark.parametrize("name", SEARCHES)
def test_targets(folder, name):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder) if os.environ.get("RELPOS_T5_LINES") else None
    wanted, found = both(folder, texts(tokenizer), *SEARCHES[name])
    assert found == wanted


def often(rows, n):
    """Return the most frequent sequences of n tokens that do not end a target."""
    return [list(t) for t, _ in collections.Counter(tuple(r[k:k + n]) for r in rows
                                                    for k in range(len(r) - n)).most_common(6)]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_tokens_that_a_file_forbids(folder, tmp_path, beams, where):
    """The settings in a checkpoint apply by default: those of generation_config.json, or of config.json if that file is
    missing."""
    path = tmp_path / "model"
    shutil.copytree(folder, path)
    sources = texts(None)[:20]
    plain, _ = both(path, sources, {"num_beams": beams}, ["--beams", str(beams)])
    first = [t for t, _ in collections.Counter(r[0] for r in plain).most_common(3)]
    # forbidding the end token alone has no effect
    words = [*often(plain, 1)[4:], *often(plain, 2)[:4], *often(plain, 3)[:4], [0, first[0]], [1]]
    cases = [{"bad_words_ids": words, "suppress_tokens": [t for t, in often(plain, 1)[:2]],
              "begin_suppress_tokens": first[:2]},
             {"forced_bos_token_id": first[0], "begin_suppress_tokens": [r[1] for r in plain[:6] if len(r) > 1],
              "bad_words_ids": words,
              "suppress_tokens": [first[1]], "forced_eos_token_id": 1}]
    other = {"num_beams": 2, "bad_words_ids": [[t] for t in range(8, 100)]}  # ignored if generation_config.json exists
    for case in cases:
        for file in ("generation_config.json", "config.json"):
            settings = json.loads((pathlib.Path(folder) / file).read_text())
            if file == where:
                settings |= case | {"num_beams": beams}
            elif file == "config.json":
                settings |= other
            (path / file).write_text(json.dumps(settings))
        if where == "config.json":
            (path / "generation_config.json").unlink()
        wanted, found = both(path, sources, {}, [])
        assert found == wanted, case
        assert sum(a != b for a, b in zip(wanted, plain)) > 5, case
