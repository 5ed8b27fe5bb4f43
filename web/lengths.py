#!/usr/bin/env python3
"""Measure how well the page's trained models predict the text of the view Length, and write web/lengths.json: one model
with the positions it was trained with and with others, and small models that were each trained with their own
positions. The page shows these numbers at once, without reading the text. Also measure how much the rounded weights
raise the perplexity on the held-out text. bundle.py refuses the file if it belongs to other models or another text.

    web/lengths.py BUILD    BUILD: the folder of a build, with the program relpos; takes ten minutes on two busy cores,
                            because it starts the program 1,028 times. Numbers of models that have not changed are kept.

SPDX-License-Identifier: Apache-2.0
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import bundle

OTHERS = ("none", "alibi", "rope")  # read with the model of the story, which was trained with T5
PART = 64
HELD_OUT = 107_520  # bytes on which the effect of rounding is measured


def setting(model, key):
    return next(line.split(" = ")[1] for line in model.said["relpos.lab"].splitlines() if line.startswith(f"{key} = "))


def saved(folder, model, text=b""):
    """Write the model and a text to files, and return their paths."""
    files = Path(folder, "model.safetensors"), Path(folder, "text.txt")
    for path, data in zip(files, (model.file(), text)):
        path.write_bytes(data)
    return files


def eval_(relpos, *words):
    done = subprocess.run([str(word) for word in (relpos, "lab", "eval", *words, "--json")], check=True,
                          capture_output=True, cwd=bundle.root)
    return json.loads(done.stdout)["lengths"][0]


def losses_of(relpos, model, text, scheme):
    """Return the mean loss of each part of the text. A model with learned positions reads only as far as these."""
    end = int(setting(model, "length")) if scheme == "learned" else len(text) - 1
    with tempfile.TemporaryDirectory() as folder:
        path, text_path = saved(folder, model, text)
        # the sums of the losses of the first n bytes
        totals = (n * eval_(relpos, path, "--text", text_path, "--lengths", n, "--bytes", n, "--position",
                            scheme)["loss"] for n in range(PART, end + 1, PART))
        sums = [0, *totals]
    return [round((b - a) / PART, 7) for a, b in zip(sums, sums[1:])]


def rounding(relpos, name, model):
    """Return the perplexity on the held-out text with the weights of the file, and with the rounded ones."""
    with tempfile.TemporaryDirectory() as folder:
        paths = bundle.root / f"lab/model/{name}.safetensors", saved(folder, model)[0]
        return [round(eval_(relpos, path, "--bytes", HELD_OUT)["perplexity"], 4) for path in paths]


def main(build):
    text, relpos, path = bundle.held_out().encode(), Path(build).resolve() / "relpos", bundle.web / "lengths.json"
    models = {name: bundle.Rounded(name) for name in bundle.MODELS}
    trained, *small = models.values()
    old, sums = json.loads(path.read_text()), [model.checksum for model in models.values()]
    same = (old["text"], old["part"]) == (bundle.checksum_of(text), PART)

    def losses(model, scheme, group):
        known = same and model.checksum in old["models"] and old[group].get(scheme)
        return known or losses_of(relpos, model, text, scheme)

    stored = {
        "models": sums,
        "text": bundle.checksum_of(text),
        "part": PART,
        "held_out": HELD_OUT,
        "rounding": {name: rounding(relpos, name, model) for name, model in models.items()},
        "swapped": {scheme: losses(trained, scheme, "swapped") for scheme in (setting(trained, "position"), *OTHERS)},
        "own": {setting(model, "position"): losses(model, setting(model, "position"), "own") for model in small},
    }
    path.write_text(json.dumps(stored, allow_nan=False).replace('], "', '],\n"').replace('}, "', '},\n"') + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
