"""Train decoders with relpos lab and export them to transformers, which must give the same losses on held-out text and
the same most likely tokens in f64. Needs torch, transformers and the program: RELPOS_PROGRAM, or build/release/relpos
or build/dev/relpos.

relpos computes in f32, so the bound is one f32 rounding of a loss of 3 nats. (With the exact formula of GELU, the
losses would differ by 9e-7.)"""
import json
import subprocess

import oracle
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
LENGTH, BYTES = 16, 192
TEXT = oracle.ROOT / "examples/data/gettysburg.txt"
SMALL = ["layers=2", "width=24", "heads=2", "mlp=40", f"length={LENGTH}", "batch=4", "steps=60", "warmup=5", "lr=0.01",
         "valid_share=0.2",
         f"text={TEXT}"]
MODELS = {
    "GPT2LMHeadModel": [["position=learned"], ["position=none", "activation=relu", "tied=0", "bos=1", "vocab=257"],
                        ["position=sinusoidal", "embedding_scale=0", "bos=1", "vocab=257"],
                        ["position=sinusoidal+learned", "norm_eps=1e-3"]],
    "GPTNeoXForCausalLM": [["position=rope"], ["position=rope,dim=4,base=500", "activation=relu", "tied=0"],
                           ["position=rope", "embedding_scale=0", "bos=1", "vocab=257"]],
    "LlamaForCausalLM": [["position=rope", "norm=rmsnorm", "activation=swiglu"],
                         ["position=rope,base=300", "norm=rmsnorm", "activation=geglu", "tied=0", "bos=1", "vocab=257"],
                         ["position=rope", "norm=rmsnorm", "activation=swiglu", "embedding_scale=3", "norm_eps=1e-3"]],
}
REFUSED = [("position=t5,bidirectional=0", "position = t5,bidirectional=0: GPT-2, GPT-NeoX and Llama do not have it"),
           ("position=alibi", "position = alibi"),
           ("position=rope+learned", "position = rope"),
           ("position=rope,layout=interleaved", "needs layout=half"),
           ("position=rope,scaling=linear,factor=2", "needs layout=half"),
           ("norm=rmsnorm", "norm = rmsnorm: without rope the class is GPT-2"),
           ("activation=geglu", "activation = geglu: GPT-2 has no gated MLP"), ("scale=1", "scale = 1: "),
           ("task=classifier", "task = classifier: ")]


def relpos(*arguments, wanted=0):
    done = subprocess.run([oracle.program(), "lab", *map(str, arguments)], capture_output=True)
    assert done.returncode == wanted, done.stderr.decode()
    return done.stderr.decode() if wanted else done.stdout


def train(folder, keys):
    (folder / "a.lab").write_text("\n".join(key.replace("=", " = ", 1) for key in SMALL
                                            if key.split("=")[0] not in [k.split("=")[0] for k in keys]))
    relpos("train", folder / "a.lab", "-o", folder / "run", *[x for key in keys for x in ("--set", key)])
    return folder / "run"


@pytest.mark.parametrize("name,keys", [(name, keys) for name, all_keys in MODELS.items() for keys in all_keys])
def test_losses(tmp_path, name, keys):
    run = train(tmp_path, keys)
    relpos("export", run, "--transformers", "-o", tmp_path / "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float64).eval()
    assert type(model).__name__ == name
    found = json.loads(relpos("eval", run, "--lengths", LENGTH, "--bytes", BYTES, "--json"))["lengths"][0]
    text = TEXT.read_bytes()
    held = list(text[len(text) - int(len(text) * 0.2):])[:BYTES + 1]
    assert found["bytes"] == BYTES
    bos = model.config.bos_token_id
    rows = torch.tensor([held[n:n + LENGTH] for n in range(0, BYTES, LENGTH)])
    if "bos=1" in keys:
        assert bos == 256
        rows[:, 0] = bos
    target = torch.tensor(held[1:])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(rows).logits.reshape(-1, model.config.vocab_size), target)
    bound = 3 * 2**-24
    print(f"{name} {keys}: losses differ by {abs(float(loss) - found['loss']):.2g}, bound {bound:.2g}")
    assert abs(float(loss) - found["loss"]) <= bound
    # compare the text that both programs generate after a prompt; the tokenizer in the folder has one token per byte
    prompt, new = "Four sc", 8
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    assert ids[0].tolist() == ([256] if "bos=1" in keys else []) + list(prompt.encode())
    out = model.generate(ids, max_new_tokens=new, do_sample=False, pad_token_id=0)[0].tolist()
    ours = relpos("sample", run, "--prompt", prompt, "--bytes", new, "--temperature", 0)
    assert bytes(x for x in out if x < 256) == ours[:-1]
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == prompt


def test_tokens_are_bytes(tmp_path):
    relpos("export", train(tmp_path, ["position=rope", "steps=1", "warmup=0"]), "--transformers", "-o", tmp_path / "hf",
           "--dtype", "bf16")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "".join(map(chr, range(1, 700))) + "\u20ac \U0001f600\n\n  end"
    assert tokenizer(text).input_ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype="auto").dtype == torch.bfloat16


@pytest.mark.parametrize("key,words", REFUSED)
def test_others_are_refused(tmp_path, key, words):
    more = [f"text={TEXT} {TEXT}", "classes=2"] if key == "task=classifier" else []
    run = train(tmp_path, [key, "steps=1", "warmup=0", *more])
    assert words in relpos("export", run, "--transformers", "-o", tmp_path / "hf", wanted=1)
    assert not (tmp_path / "hf").exists()
