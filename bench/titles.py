#!/usr/bin/env python3
"""Compare the titles that the model of examples/titler.sh generates for 240 instructions from the grammar below, with
greedy decoding in f32 with and without --exact. --types also compares the types of weights, with five beams.
--transformers compares with transformers, with five beams in f32, and needs transformers and torch.

    python3 bench/titles.py build/release/relpos out/titler/checkpoint [--types] [--transformers] \
        [--json bench/results/titles.json]

SPDX-License-Identifier: Apache-2.0"""
import argparse
import json
import random
import re
import subprocess
import sys

VERBS = ["Fix", "Migrate", "Investigate", "Refactor", "Add", "Remove", "Update", "Document", "Benchmark", "Rewrite",
         "Review", "Debug",
         "Implement", "Replace", "Deploy", "Profile", "Test", "Clean up", "Rename", "Validate"]
WHAT = ["the failing unit test in parser.py", "the payment retry logic", "a flaky integration test",
        "the database connection pool",
        "the user login form", "caching for the search endpoint", "the CSV export of monthly reports",
        "the Dockerfile of the worker image",
        "the type annotations of the scheduler", "the rate limiter in the API gateway", "the image resizing pipeline",
        "the memory leak in the websocket server", "pagination of the audit log", "the README and the install guide",
        "the nightly backup job",
        "the error messages of the command line tool", "the feature flag for dark mode",
        "the JSON schema of the webhook payload",
        "the migration that adds an index to orders", "the translation files for German and French"]
HOW = ["by handling empty input", "without breaking the old clients", "that times out on Windows after 30 seconds",
       "so that it works with Python 3.12", "and add a regression test", "because customers reported wrong totals",
       "before the release on Friday", "and explain the root cause in the ticket", "to reduce p99 latency below 200 ms",
       "using the new configuration loader", "after the upgrade to Postgres 16",
       "while keeping backwards compatibility with version 1 of the protocol", "as discussed in the design review",
       "and ask Maria for a review", "when the cache is cold"]
PREFIX = ["--prefix", "summarize agent step: ", "--threads", "1"]
# The options of examples/titler.sh, and the equivalent options of transformers.
BEAMS = ["--beams", "5", "--no-repeat-ngram", "2", "--repetition-penalty", "1.3", "--length-penalty", "0.8",
         "--max-new-tokens", "32"]

SAME_BEAMS = {"num_beams": 5, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "length_penalty": 0.8,
              "max_new_tokens": 32}


def instructions(n=240):
    draw = random.Random(5)
    lines = {}
    while len(lines) < n:
        line = f"{draw.choice(VERBS)} {draw.choice(WHAT)} {draw.choice(HOW)}"
        if draw.random() < .3:
            line += f", then {draw.choice(VERBS).lower()} {draw.choice(WHAT)}"
        lines[line] = True
    return list(lines)


def by_transformers(checkpoint, lines):
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    texts = []
    for line in lines:
        tokens = tokenizer(PREFIX[1] + line, return_tensors="pt")
        texts.append(tokenizer.decode(model.generate(**tokens, **SAME_BEAMS, min_new_tokens=0)[0],
                                      skip_special_tokens=True))
    return texts, f"transformers {transformers.__version__}, torch {torch.__version__}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("relpos")
    parser.add_argument("checkpoint")
    parser.add_argument("--types", action="store_true")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--json")
    a = parser.parse_args()
    lines = instructions()

    def write(*options):
        done = subprocess.run([a.relpos, "t5", "generate", a.checkpoint, *PREFIX, "--stats", *options],
                              input="\n".join(lines) + "\n",
                              capture_output=True, text=True, check=True)
        return done.stdout.splitlines(), done.stderr.strip()

    greedy = ["--type", "f32", "--max-new-tokens", "48", "--batch", "1"]
    plain, _ = write(*greedy)
    exact, said = write(*greedy, "--exact")
    found = dict(zip(("tokens", "proposed", "accepted", "passes"), map(int, re.search(
        r"(\d+) tokens in .* (\d+) tokens proposed, (\d+) accepted .* (\d+) passes", said).groups())))
    about = json.loads(subprocess.run([a.relpos, "info", "--json"], capture_output=True, text=True, check=True).stdout)
    result = {"isa": about["isa"], "build": about["build"], "lines": len(lines),
              "exact": {"equal": sum(x == y for x, y in zip(plain, exact)), **found}}
    if a.types or a.transformers:
        wide, _ = write(*BEAMS, "--type", "f32")
    if a.transformers:
        theirs, by = by_transformers(a.checkpoint, lines)
        result["equal to transformers"] = {"equal": sum(x == y for x, y in zip(wide, theirs)), "by": by}
    if a.types:
        result["equal to f32"] = {t: sum(x == y for x, y in zip(wide, write(*BEAMS, "--type", t)[0]))
                                  for t in ("bf16", "int8", "int4")}
    print(json.dumps(result, indent=1, allow_nan=False))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(result, indent=1, allow_nan=False) + "\n")
    return result["exact"]["equal"] != len(lines) or len(plain) != len(lines)


sys.exit(main())
