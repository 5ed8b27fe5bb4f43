"""Run the commands of docs/encoders.md with models of the tests in place of those that it downloads.
SPDX-License-Identifier: Apache-2.0"""
import os
import pathlib
import re
import subprocess
import sysconfig

import numpy as np
import relpos

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/encoders.md").read_text()
MODELS = {"all-mpnet-base-v2": "search", "ms-marco-MiniLM-L6-v2": "rank", "twitter-roberta-base-sentiment": "labels",
          "nli-deberta-v3-base": "labels"}
NOTES = ["Reset the password on the account page.", "The cat sleeps.", "Stocks fell on Monday.", "I liked it.",
         "Where is the cat?", "A password has twelve letters."]
DOWNLOADS = "pip install", "python3 -c \"from huggingface_hub"
PATH = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"


def run(folder, heading, more=()):
    """Run the commands of a section in a folder, without those that download and then `more`; return what they
    print."""
    section = GUIDE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", section, re.S) for line in block.splitlines()]
    commands = [line for line in lines if not line.startswith(DOWNLOADS)]
    assert commands, heading
    for name, model in MODELS.items():
        (folder / name).symlink_to(ROOT / "tests/encoder/texts" / model)
    for name in "notes.txt", "hits.txt":
        (folder / name).write_text("".join(f"{note}\n" for note in NOTES))
    (folder / "articles.csv").write_text("title,year\n" + "".join(f'"{note}",2020\n' for note in NOTES))
    (folder / "pairs.tsv").write_text("premise\thypothesis\nThe cat sleeps.\tA cat is asleep.\nA\tB\n")
    return subprocess.run(["sh", "-e", "-c", "\n".join([*commands, *more])], cwd=folder, check=True, text=True,
                          stdout=subprocess.PIPE, env=os.environ | {"PATH": PATH}).stdout.splitlines()


def test_search(tmp_path):
    table, = re.findall(r"`(relpos embed .* --column .*?)`", GUIDE)
    shown = run(tmp_path, "Search your notes with all-mpnet in five commands", [table])
    model = relpos.Encoder(ROOT / "tests/encoder/texts/search")
    scores = model.encode(NOTES) @ model.encode(re.search(r"--text '(.*)'", GUIDE)[1])
    assert shown == [f"{scores[n]:.2f}  {NOTES[n]}" for n in np.argsort(-scores)[:5]]
    lines, column = (np.load(tmp_path / name)["vectors"] for name in ("notes.npz", "titles.npz"))
    np.testing.assert_array_equal(lines, column)


def test_rerank(tmp_path):
    query = re.search(r"--query '(.*?)' --top", GUIDE)[1]
    best = relpos.Encoder(ROOT / "tests/encoder/texts/rank").rank(query, NOTES, top_k=3)
    shown = [line.split("\t") for line in run(tmp_path, "A reranker on one core")]
    assert [line[2] for line in shown] == [NOTES[x["corpus_id"]] for x in best]


def test_labels(tmp_path):
    found, = relpos.Encoder(ROOT / "tests/encoder/texts/labels").classify("I liked it.")
    shown = run(tmp_path, "Labels")
    assert len(shown) == 3 and found["label"] in shown[0]


def test_without_a_download(tmp_path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    shown = run(tmp_path, "Try it without a download")
    assert len(shown) == 3 and shown[-1].count("\t") == 2 * 3 - 1
    vectors = np.load(tmp_path / "cat.npz")["vectors"]
    np.testing.assert_array_equal(vectors[0], relpos.Encoder(tmp_path / "tests/encoder/texts/search").encode(NOTES[1]))
