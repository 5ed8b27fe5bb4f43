# lab.sh -- sourced after checks.sh by the scripts in tests/lab. It creates the small experiment $T/small.lab, its training run $T/run, and
# further inputs. Exit code 77: there is no CBLAS.
# SPDX-License-Identifier: Apache-2.0

# number NAME FILE: print the number with this name in a JSON file
number()
{
    grep -oE "\"$1\":[-0-9.e+]*" "$2" | head -n 1 | sed 's/.*://'
}

# near A B BOUND: print 1 if A and B differ by at most BOUND times B
near()
{
    awk -v a="$1" -v b="$2" -v bound="$3" 'BEGIN {d = a - b; print d * d <= bound * bound * b * b && b != 0}'
}

# prepare ARGUMENT...: run a command without a check, since another script checks it
prepare()
{
    run "$@"
    [ $code = 0 ] || { echo "relpos $*: $(cat "$T/err")"; exit 1; }
}

cat >"$T/small.lab" <<END
# an experiment as small as possible
layers = 1
width = 16
heads = 2
mlp = 32
length = 16
batch = 2
steps = 24      # a comment
warmup = 2
lr = 0.01
log_every = 4
dropout = 0.1
position = t5,buckets=8,max_distance=16,bidirectional=0+rope
valid_share = 0.2
eval_bytes = 200
text = examples/data/gettysburg.txt
END

run lab train "$T/small.lab" -o "$T/run" --threads 1
if grep -q 'cannot be loaded' "$T/err"; then
    echo "skipped: $(cat "$T/err")"
    exit 77
fi

# make_stopped: create $T/three, the same run after being stopped and resumed
make_stopped()
{
    prepare lab train "$T/small.lab" -o "$T/three" --threads 2 --until 18
    prepare lab train "$T/small.lab" -o "$T/three" --threads 3 --resume
}

# make_model: create $T/model.safetensors with only the weights of the run
make_model()
{
    prepare lab export "$T/run" --model -o "$T/model.safetensors"
}

# make_learned: create $T/learned, a model that adds learned positions to its embedding
make_learned()
{
    prepare lab train "$T/small.lab" -o "$T/learned" --set position=learned --set steps=3
}

# refused CODE PATTERN ARGUMENT...: check the exit code and a single matching line on standard error
refused()
{
    wanted=$1 expected=$2
    shift 2
    run "$@"
    read_error
    check 'exit code, and lines on standard error' "$wanted 1" "$code $lines"
    says "$expected"
}

# explain_refused CODE PATTERN ARGUMENT...: like refused, for relpos explain
explain_refused()
{
    wanted=$1 expected=$2
    shift 2
    refused "$wanted" "$expected" explain "$@"
}

# make_classes: create $T/classes.lab, a classifier of three files with different words (a window of 16 bytes has at least
# two), and $T/classes_sweep.lab, which has two seeds.
make_classes()
{
    awk 'BEGIN {for (n = 0; n < 4000; n++) {x = (16807 * x + 12345) % 2147483647; printf "%s ", substr("red bluewhit", x % 3 * 4 + 1, 4)}}' >"$T/one.txt"
    awk 'BEGIN {for (n = 0; n < 3000; n++) {x = (16807 * x + 12345) % 2147483647; printf "%s ", substr("saltoil herb", x % 3 * 4 + 1, 4)}}' >"$T/two.txt"
    awk 'BEGIN {for (n = 0; n < 1000; n++) {x = (16807 * x + 12345) % 2147483647; printf "%s ", substr("leadiron tin", x % 3 * 4 + 1, 4)}}' >"$T/three.txt"
    (
        grep -v '^text\|^position\|^dropout\|^eval_bytes' "$T/small.lab"
        printf '%s\n' 'task = classifier' 'classes = 3' 'position = t5,buckets=8,max_distance=16' 'eval_bytes = 20000' 'dropout = 0.1' \
            "text = $T/one.txt $T/three.txt $T/two.txt"
    ) | sed 's/^steps = .*/steps = 60/; s/^batch = .*/batch = 4/' >"$T/classes.lab"
    (cat "$T/classes.lab" && echo 'vary.seed = 1 | 2') | sed 's/^steps = .*/steps = 3/' >"$T/classes_sweep.lab"
}

# make_sweep: create $T/sweep.lab, a sweep of four short training runs
make_sweep()
{
    (
        cat "$T/small.lab"
        echo 'vary.position_layers = own | shared'
        echo 'seeds = 2'
        echo 'eval_lengths = 16 32'
    ) | sed 's/^steps = .*/steps = 3/' >"$T/sweep.lab"
}

# make_results: create $T/results.jsonl with the sweep of make_sweep, and $T/classes.jsonl with the sweep of make_classes
make_results()
{
    make_sweep
    make_classes
    prepare lab sweep "$T/sweep.lab" -o "$T/results.jsonl"
    prepare lab sweep "$T/classes_sweep.lab" -o "$T/classes.jsonl"
}

# lines FILE: print the results of a sweep in a fixed order, without what differs from run to run
lines()
{
    sed 's/"\(ms_per_step\|processor_share\)":[0-9.e-]*//g' "$1" | sort
}
