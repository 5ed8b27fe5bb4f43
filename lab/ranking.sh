#!/bin/sh
# ranking.sh RELPOS OUT [PROCESSES] -- run all trainings of the page on the ranking, lab/results/ranking.md. Each process (default: one for each core) runs one training
# at a time on one thread. Results that OUT already has are kept, so the same command continues a ranking that was stopped.
# docs/maintainers/lab-design.md, "The ranking", explains the stages.
# From the root of the source:
#
#     lab/corpus.sh out/corpus.txt
#     lab/ranking.sh build/release/relpos out/ranking
#     lab/paper.py out/ranking -o out/ranking/ranking.md
#
# OUT/state is the command that prints how far it is: a line for each stage that has begun.
# SPDX-License-Identifier: Apache-2.0
set -eu
usage='usage: lab/ranking.sh RELPOS OUT [PROCESSES]'
relpos=${1:?$usage}
out=${2:?$usage}
processes=${3:-$(nproc)}
here=$(dirname "$0")
mkdir -p "$out" out
csplit -s -f out/vim- "$here/data/vim.txt" '/^\*builtin.txt/' '/^\*options.txt/' '/^\*syntax.txt/' # the texts of classify.lab
echo '#!/bin/sh' >"$out/state"
chmod +x "$out/state"
sweep() # sweep EXPERIMENT RESULTS OPTION...: train and measure what has no result; the processes share the work
{
    experiment=$1 results=$2
    shift 2
    echo "\"$relpos\" lab sweep \"$experiment\" -o \"$results\" --state $*" >>"$out/state"
    pids=''
    for _ in $(seq "$processes"); do
        "$relpos" lab sweep "$experiment" -o "$results" --threads 1 "$@" &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid"
    done
}
next() # next STAGE NAME RESULTS: write the experiment of a stage, OUT/NAME.lab
{
    python3 "$here/stages.py" "$1" "$3" >"$out/$2.lab.tmp"
    mv "$out/$2.lab.tmp" "$out/$2.lab"
}
sweep "$here/ranking.lab" "$out/ranking-1.jsonl"
[ -s "$out/ranking-1-knobs.lab" ] || next knobs ranking-1-knobs "$out/ranking-1.jsonl"
sweep "$out/ranking-1-knobs.lab" "$out/ranking-1.jsonl"
[ -s "$out/ranking-2.lab" ] || next 2 ranking-2 "$out/ranking-1.jsonl"
sweep "$out/ranking-2.lab" "$out/ranking-2.jsonl"
[ -s "$out/ranking-3.lab" ] || next 3 ranking-3 "$out/ranking-2.jsonl"
sweep "$out/ranking-3.lab" "$out/ranking-3.jsonl" --keep "$out/models"
[ -s "$out/ranking-4.lab" ] || next 4 ranking-4 "$out/ranking-2.jsonl"
sweep "$out/ranking-4.lab" "$out/ranking-4.jsonl"
[ -s "$out/ranking-6.lab" ] || next 6 ranking-6 "$out/ranking-3.jsonl"
sweep "$out/ranking-6.lab" "$out/ranking-6.jsonl"
[ -s "$out/ranking-7.lab" ] || next 7 ranking-7 "$out/ranking-3.jsonl"
sweep "$out/ranking-7.lab" "$out/ranking-7.jsonl"
sweep "$here/previous.lab" "$out/previous.jsonl"
sweep "$here/previous.lab" "$out/previous.jsonl" --set batch=4 --set steps=4000 --set eval_previous=100
sweep "$here/previous.lab" "$out/previous.jsonl" --set batch=64 --set steps=1000 --set eval_previous=25
sweep "$here/previous.lab" "$out/previous.jsonl" --set length=32 --set batch=64
sweep "$here/previous.lab" "$out/previous.jsonl" --set length=512 --set batch=4
for name in tasks classify; do
    sweep "$here/$name.lab" "$out/$name.jsonl"
    [ -s "$out/$name-2.lab" ] || next "$name" "$name-2" "$out/$name.jsonl"
    sweep "$out/$name-2.lab" "$out/$name-2.jsonl"
done
# does any model add at all? Without a model that does, addition is not compared
sweep "$here/tasks.lab" "$out/addition.jsonl" --set vary.generate=addition --set generate_size=10 --set 'eval_lengths=5 10 12' --set seeds=1 \
    --set 'vary.lr=0.001 | 0.002' --set 'vary.position=rope | t5,bidirectional=0 | kerple'
[ -s "$out/tasks-3.lab" ] || next retry tasks-3 "$out/tasks-2.jsonl"
if grep -q '^run = ' "$out/tasks-3.lab"; then # without such a line, every start has learned its task
    sweep "$out/tasks-3.lab" "$out/tasks-3.jsonl"
fi
