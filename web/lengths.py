#!/usr/bin/env python3
"""Measure how well the page's trained model predicts the text of the view Length with each scheme, and write web/lengths.json. The page shows
these numbers at once, without reading the text. bundle.py refuses them if they belong to another model or text.

    web/lengths.py BUILD    BUILD: the folder of a build, with the program relpos; takes seven minutes on two busy cores, because it
                            starts the program 512 times

SPDX-License-Identifier: Apache-2.0
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import bundle

SCHEMES = ("t5,bidirectional=0", "none", "alibi", "rope")
PART = 64


def main(build):
    text, model, relpos = bundle.held_out().encode(), bundle.Rounded(), Path(build) / "relpos"
    losses = {}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "model.safetensors"), Path(folder, "text.txt")
        for path, data in zip(files, (model.file(), text)):
            path.write_bytes(data)

        def total(n, scheme):
            """Return the sum of the losses of the first n bytes."""
            command = [relpos, "lab", "eval", files[0], "--text", files[1], "--lengths", n, "--bytes", n, "--position", scheme, "--json"]
            done = subprocess.run([str(word) for word in command], check=True, capture_output=True)
            return n * json.loads(done.stdout)["lengths"][0]["loss"]

        for scheme in SCHEMES:
            sums = [0, *(total(n, scheme) for n in range(PART, len(text), PART))]
            losses[scheme] = [round((b - a) / PART, 7) for a, b in zip(sums, sums[1:])]
    stored = {"model": model.checksum, "text": bundle.checksum_of(text), "part": PART, "losses": losses}
    Path(bundle.web / "lengths.json").write_text(json.dumps(stored).replace('], "', '],\n"') + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
