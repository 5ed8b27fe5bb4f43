"""Write made-up results of an experiment of lab/stages.py: fake_ranking.py EXPERIMENT.lab RESULTS.jsonl [--append]. The
loss of a scheme depends only on its name, its learning rate and its second setting, plus noise that depends on the
seed. The best rate is .008, and T5 at its best second setting has the loss of RoPE.
SPDX-License-Identifier: Apache-2.0"""
import json
import math
import random
import re
import sys

LOSS = {"none": 1.9, "sinusoidal": 1.8, "learned": 1.7, "alibi": 1.605, "kerple": 1.6, "t5,bidirectional=0": 1.503,
        "rope": 1.5}
SPREAD = {"none": 0.05, "t5,bidirectional=0": 0.001, "rope": 0.001}  # of the starts; 0.005 for the others


def main():
    keys, runs = {}, []
    for line in open(sys.argv[1]):
        key, equals, value = line.rstrip("\n").partition(" = ")
        if equals and key[0] != "#" and not key.startswith("quick."):
            runs.append(dict(x.split("=", 1) for x in value.split())) if key == "run" else keys.update({key: value})
    seeds, lowest = int(keys.pop("seeds", 1)), int(keys.pop("seed", 1))
    with open(sys.argv[2], "a" if "--append" in sys.argv else "w") as to:
        for start in range(lowest, lowest + seeds):
            for vary in runs:
                what, seed = re.sub(",base=[0-9]*|,max_distance=[0-9]*", "",
                                    vary["position"]), int(vary.get("seed", start))
                draw = random.Random(f"{what} {seed}")
                middle = LOSS[what] + 0.05 * abs(math.log2(float(vary.get("lr", keys.get("lr"))) / 0.008)) + draw.gauss(
                    0, SPREAD.get(what, 0.005))
                middle += 0.01 * (vary["position"] != what) - 0.003 * (vary.get("lr_terms") == "3")
                lengths = []
                # a scaling halves what RoPE loses beyond 128
                slope = 0.3 * (what == "rope") / (2 if vary.get("eval_position") else 1)
                for length in map(int, keys["eval_lengths"].split()):
                    pieces = [middle + 0.1 * (k % 7 - 3) + slope * max(0, math.log2(length / 128)) for k in range(32)]
                    mean = sum(pieces) / 32
                    lengths.append({"length": length, "loss": mean, "perplexity": math.exp(mean), "pieces": pieces,
                                    "positions": []})
                experiment = {"task": "decoder", "weight_decay": "0.1", "clip": "1.0", **keys, **vary, "seed": seed}
                line = {"experiment": "".join(f"{k} = {v}\n" for k, v in experiment.items()), "vary": vary,
                        "seed": seed, "train_loss": middle,
                        "losses": [middle + 2 * (1 - k / 49) for k in range(50)], "pieces_of_files": [18, 12, 2],
                        "lengths": lengths, "weights": 214208,
                        "position_weights": 0, "ms_per_step": 70.0, "processor_share": 0.97, "bytes": 48770688,
                        "machine": {"threads": 1, "version": "0", "isa": "x", "blas": "y"},
                        "ngrams": [{"order": k, "loss": 3 - 0.3 * k, "perplexity": math.exp(3 - 0.3 * k),
                                    "pieces": [3 - 0.3 * k] * 32} for k in range(1, 7)]}
                if "eval_every" in keys:
                    every = int(keys["eval_every"])
                    line["curve"] = [{"step": k, "loss": middle + 2 * (1 - k / int(vary["steps"]))}
                                     for k in range(every, int(vary["steps"]) + 1, every)]
                to.write(json.dumps(line) + "\n")


main()
