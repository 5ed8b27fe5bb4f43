#!/usr/bin/env python3
"""Write the experiment of the next stage of the ranking from the results of the stage before.

    lab/stages.py STAGE RESULTS.jsonl... >STAGE.lab

Stage 1 is lab/ranking.lab: four learning rates for each position scheme. The other stages depend only on the results:

    knobs   two values of a second setting (KNOBS) for each scheme, at its best rate
    2       the two best settings of each scheme, for 10 MB
    3       the best of these, with five new starts, measured on the report pieces at all lengths
    4       the same settings for 20 MB, with one of the new starts
    6       from the results of stage 3, whose models are in the folder models beside them: every start of SCAFFOLDS
            without its positions, and with them as a control, for 1 MB; the control of RoPE is also read with SCALINGS
    7       from the results of stage 3 and its models: three starts of LONGER for 1 MB at length 4,096, and at 128;
            tables that go on at 128 are also read with the other max_distance
    tasks, classify   from the results of lab/tasks.lab or lab/classify.lab: the best learning rate of each task and
                      scheme, with five new starts
    retry   from the results of stage tasks: each start that has not learned its task (lab/report/tasks.py), at half the
            rate with twice the steps

"Best" is the lowest loss at the trained length on the selection pieces, or at the trained size; of a rate with several
starts, the worst start counts. Only stages 3, 4, 6 and 7 read the report pieces.
SPDX-License-Identifier: Apache-2.0"""
import pathlib
import sys

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here / "report"))
from results import read  # noqa: E402
from tasks import learned  # noqa: E402

# The second setting of each scheme, with values below and above the default.
KNOBS = {
    "none": ("weight_decay", "0.03", "0.3"),
    "sinusoidal": ("sinusoidal_scale", "0.007", "0.06"),
    "learned": ("lr_terms", "0.3", "3"),
    "alibi": ("weight_decay", "0.03", "0.3"),
    "kerple": ("lr_terms", "0.3", "3"),
    "t5,bidirectional=0": ("lr_terms", "0.3", "3"),
    "rope": ("position", "rope,base=1000", "rope,base=100000"),
}
SCAFFOLDS = ("rope", "t5,bidirectional=0", "kerple", "alibi")
SCALINGS = ("yarn,factor=4,original_max_position_embeddings=128", "yarn,factor=16,original_max_position_embeddings=128",
            "dynamic,factor=1,max_position_embeddings=128")
LONGER = ("t5,bidirectional=0", "kerple", "rope")
REPORT = {"valid": "out/corpus/report-vim.txt out/corpus/report-manual.txt out/corpus/report-topics.txt"}
LENGTHS = {"eval_lengths": "64 128 256 512 1024 2048"}


def scheme(position):
    return position.split(",base=")[0]


def loss(line):
    """Return the loss at the trained length; infinity if it is not finite."""
    trained = int(line["experiment"]["length" if line["experiment"].get("generate", "none") == "none"
                                     else "generate_size"])
    found = [x["loss"] for x in line["lengths"] if x["length"] == trained]
    return float("inf") if found[0] is None else found[0]


def chosen(lines, n):
    """Return {scheme: its n results with the lowest losses}, best first."""
    groups = {what: [] for what in KNOBS}
    for line in lines:
        groups[scheme(line["experiment"]["position"])].append(line)
    missing = [what for what, some in groups.items() if len(some) < n]
    if missing:
        sys.exit(f"stages.py: there are no results of {', '.join(missing)} (run the stage before to its end)")
    return {what: sorted(some, key=loss)[:n] for what, some in groups.items()}


def setting(line, **other):
    """Return the text of a line "run" with the settings of a result, without its number of steps."""
    keys = {**{k: v for k, v in line["vary"].items() if k not in ("steps", "warmup")}, **other}
    return " ".join(f"{k}={v}" for k, v in keys.items())


def knobs(lines, _):
    """Yield the lines "run" of stage knobs. The file of stage 1 later also has results of this stage."""
    first = [line for line in lines if line["vary"].keys() <= {"position", "lr", "steps", "warmup"}
             and line["vary"]["position"] in KNOBS]
    for what, [best] in chosen(first, 1).items():
        key, *values = KNOBS[what]
        for value in values:
            yield f"{setting(best, **{key: value})} steps={best['vary']['steps']} warmup={best['vary']['warmup']}"


def best(n, steps):
    """Return the function of a stage that trains the n best settings of each scheme for some steps."""
    def runs(lines, _):
        for group in zip(*chosen(lines, n).values()):
            for line in group:
                yield f"{setting(line)} steps={steps} warmup={steps // 20}"
    return runs


def best_rates(lines, _):
    """Yield the lines "run" of the best learning rate of each task and scheme: the rate whose worst start has the
    lowest loss."""
    groups = {}
    for line in lines:
        groups.setdefault((line["vary"].get("generate"), line["vary"]["position"]),
                          {}).setdefault(line["vary"]["lr"], []).append(line)
    for rates in groups.values():
        yield setting(min((max(starts, key=loss) for starts in rates.values()), key=loss))


def retried(lines, _):
    """Yield the lines "run" of stage retry."""
    for line in lines:
        if not learned(line):
            steps, warmup = (2 * int(line["experiment"][key]) for key in ("steps", "warmup"))
            yield setting(line, lr=f"{float(line['vary']['lr']) / 2:g}", steps=steps, warmup=warmup, seed=line["seed"])


def kept(line, folder):
    """Return the path of the model of a result of stage 3: the name that --keep gives it."""
    return folder / f"{'+'.join(line['vary'].values())}-{line['seed']}.safetensors"


def dropped(lines, folder):
    """Yield the lines "run" of stage 6: they begin with the weights of stage 3, with the setting of that scheme and a
    half of its rate."""
    for line in lines:
        vary = line["vary"]
        if scheme(vary["position"]) not in SCAFFOLDS:
            continue
        for position in ("none", vary["position"]):
            keys = {**vary, "position": position, "lr": f"{float(vary['lr']) / 2:g}", "steps": 500, "warmup": 25,
                    "seed": line["seed"], "init_from": kept(line, folder)}
            if position == "none":
                keys.pop("lr_terms", None)
            yield " ".join(f"{k}={v}" for k, v in keys.items())
        for scaling in SCALINGS * vary["position"].startswith("rope"):  # the model of the line before
            yield " ".join(f"{k}={v}"
                           for k, v in {**keys, "eval_position": f"{vary['position']},scaling={scaling}"}.items())


def longer(lines, folder):
    """Yield the lines "run" of stage 7: they begin with the weights of stage 3. Readings follow their training, so it
    is done once."""
    for line in lines:
        vary = line["vary"]
        if scheme(vary["position"]) not in LONGER or line["seed"] > 13:
            continue
        own, *others = [vary["position"]]
        if own.startswith("t5"):
            own, *others = [f"t5,max_distance={distance},bidirectional=0" for distance in (128, 4096)]
        same = " ".join([*(["lr_terms=" + vary["lr_terms"]] if "lr_terms" in vary else []), f"seed={line['seed']}",
                         f"init_from={kept(line, folder)}"])
        for position in (own, *others):
            yield f"position={position} length=4096 batch=1 {same}"
        yield f"position={own} length=128 batch=32 {same}"
        for other in others:
            yield f"position={own} length=128 batch=32 {same} eval_position={other}"


# Stage: the experiment that it varies, the keys that differ from it, and the function that yields its lines "run" from
# the results of the stage before and the folder of the models.
STAGES = {
    "knobs": ("ranking", {}, knobs),
    "2": ("ranking", {}, best(2, 5000)),
    "3": ("ranking", {**REPORT, **LENGTHS, "seed": "11", "seeds": "5", "eval_every": "250", "eval_previous": "50"},
          best(1, 5000)),
    "4": ("ranking", {**REPORT, "eval_lengths": "128 512", "seed": "11"}, best(1, 10000)),
    "6": ("ranking", {**REPORT, "eval_lengths": "128 256 512 1024 2048"}, dropped),
    "7": ("ranking", {**REPORT, "eval_lengths": "128 512 2048 4096 8192", "eval_stride": "128", "eval_bytes": "16384",
                      "lr": "0.002", "steps": "250", "warmup": "12"}, longer),
    "tasks": ("tasks", {"seed": "11", "seeds": "5"}, best_rates),
    "classify": ("classify", {"seed": "11", "seeds": "5"}, best_rates),
    "retry": ("tasks", {"seeds": "1"}, retried),
}


def experiment(stage, lines, folder):
    """Return lab/ranking.lab, lab/tasks.lab or lab/classify.lab with the keys and runs of a stage."""
    base, keys, runs = STAGES[stage]
    keys = dict(keys)
    text = [f"# The best settings of lab/{base}.lab, made by lab/stages.py {stage} from the results of the stage "
            "before."]
    for line in (here / f"{base}.lab").read_text().splitlines():
        key = line.split(" = ")[0]
        if line[:1] != "#" and not line.startswith(("run = ", "vary.", "quick.")):
            text.append(f"{key} = {keys.pop(key)}" if key in keys else line)
    return "\n".join([*text, *(f"{k} = {v}" for k, v in keys.items()),
                      *(f"run = {run}" for run in runs(lines, folder))]) + "\n"


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in STAGES:
        sys.exit(f"usage: lab/stages.py {'|'.join(STAGES)} RESULTS.jsonl...")
    models = pathlib.Path(sys.argv[2]).parent / "models"
    print(experiment(sys.argv[1], [line for path in sys.argv[2:] for line in read(pathlib.Path(path))], models), end="")


if __name__ == "__main__":
    main()
