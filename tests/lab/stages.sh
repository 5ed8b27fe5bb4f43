#!/bin/sh
# stages.sh -- test lab/stages.py: the experiments that it writes from results
#
#     tests/lab/stages.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

fake() # fake EXPERIMENT RESULTS...
{
    python3 -B tests/lab/fake_ranking.py "$@" || exit 1
}
stage() # stage NAME RESULTS: write $T/NAME.lab
{
    command="lab/stages.py $1"
    python3 lab/stages.py "$1" "$2" >"$T/$1.lab" 2>"$T/err"
    check 'exit code' '0 ' "$? $(cat "$T/err")"
}
fake lab/ranking.lab "$T/one.jsonl"
stage knobs "$T/one.jsonl"
check 'two for each scheme, at its best rate' '14 14' "$(grep -c '^run' "$T/knobs.lab") $(grep -c '^run.* lr=0.008 ' "$T/knobs.lab")"
check 'the base of rope' 1 "$(grep -c '^run = position=rope,base=1000 lr=0.008 steps=1250 warmup=62$' "$T/knobs.lab")"
check 'on the same pieces' "$(grep '^valid' lab/ranking.lab)" "$(grep '^valid' "$T/knobs.lab")"
fake "$T/knobs.lab" "$T/one.jsonl" --append
cp "$T/knobs.lab" "$T/before.lab"
stage knobs "$T/one.jsonl"
same 'results of the same stage change nothing' "$T/before.lab" "$T/knobs.lab"
stage 2 "$T/one.jsonl"
check 'the best two of each' 14 "$(grep -c '^run.* steps=5000 warmup=250$' "$T/2.lab")"
check 'the best of t5, and its second' '0.008 lr_terms=3 0.008' "$(sed -n 's/^run = position=t5,bidirectional=0 lr=\(.*\) steps.*/\1/p' "$T/2.lab" | xargs)"
fake "$T/2.lab" "$T/two.jsonl"
stage 3 "$T/two.jsonl"
check 'one of each, with five new starts' '7 1 1' "$(grep -c '^run' "$T/3.lab") $(grep -c '^seeds = 5$' "$T/3.lab") $(grep -c '^seed = 11$' "$T/3.lab")"
check 'on the other pieces' 'out/corpus/report-vim.txt out/corpus/report-manual.txt out/corpus/report-topics.txt' "$(sed -n 's/^valid = //p' "$T/3.lab")"
stage 4 "$T/two.jsonl"
check 'one of each, for 10,000 steps' 7 "$(grep -c '^run.* steps=10000 ' "$T/4.lab")"
for name in knobs 2 3 4; do
    ok lab sweep "$T/$name.lab" --list
done
check 'the last' 7 "$(wc -l <"$T/out")"

fake "$T/3.lab" "$T/three.jsonl"
stage 6 "$T/three.jsonl"
check 'each start of four schemes, without and with its positions, and RoPE read with scalings' '20 20 15' \
    "$(grep -c '^run = position=none ' "$T/6.lab") $(grep '^run = ' "$T/6.lab" | grep -cv 'position=none \|eval_position') $(grep -c '^run = position=rope.* eval_position=rope.*,scaling=' "$T/6.lab")"
check 'the model that --keep writes' 5 "$(grep -c "^run = position=none lr=0.004 steps=500 warmup=25 seed=1[1-5] init_from=$T/models/rope+0.008+5000+250-1[1-5].safetensors" "$T/6.lab")"
ok lab sweep "$T/6.lab" --list
check 'all differ' 55 "$(wc -l <"$T/out")"
for task in copy reverse; do
    for start in 1:0.0005:0.5 1:0.001:0.2 1:0.002:0.1 2:0.0005:0.4 2:0.001:0.3 2:0.002:2; do # SEED:RATE:LOSS; 0.002 has the lowest loss and the highest
        seed=${start%%:*} loss=${start##*:} rate=${start#*:} rate=${rate%:*}
        printf '{"experiment":"task = decoder\\nposition = rope\\ngenerate = %s\\ngenerate_size = 20\\nlength = 65\\nbatch = 2\\nsteps = 9\\nseed = %s\\nlr = %s\\n",' $task $seed $rate
        printf '"vary":{"lr":"%s","generate":"%s","position":"rope"},"seed":%s,"train_loss":1,"weights":9,"position_weights":0,"ms_per_step":1,"bytes":1,' $rate $task $seed
        printf '"lengths":[{"length":10,"loss":9,"lines":5,"exact":5},{"length":20,"loss":%s,"lines":5,"exact":5}],' $loss
        echo '"machine":{"threads":1,"version":"0","isa":"x","blas":"y"}}'
    done
done >"$T/tasks.jsonl"
# the same keys without a generated task, at length 65: the rates of classifiers
sed 's/generate = [a-z]*.ngenerate_size = 20.n//; s/"generate":"[a-z]*",//; s/"length":20/"length":65/; s/"lines":5,"exact":5/"accuracy":0.5/g; s/task = decoder/task = classifier/' "$T/tasks.jsonl" | head -3 >"$T/classify.jsonl"
stage classify "$T/classify.jsonl"
check 'the best rate of a classifier' '1 1' "$(grep -c '^run = lr=0.002 position=rope$' "$T/classify.lab") $(grep -c '^task = classifier$' "$T/classify.lab")"
stage tasks "$T/tasks.jsonl"
check 'the best rate of each task: its worse start has the lowest loss' '1 1' "$(grep -c '^run = lr=0.001 generate=copy position=rope$' "$T/tasks.lab") $(grep -c '^run = lr=0.001 generate=reverse position=rope$' "$T/tasks.lab")"
ok lab sweep "$T/tasks.lab" --list
check 'five starts of each' 10 "$(wc -l <"$T/out")"
sed '2s/"length":20,"loss":[0-9.]*,"lines":5,"exact":5/"length":20,"loss":1,"lines":5,"exact":4/; s/steps = 9.n/&warmup = 2\\n/' "$T/tasks.jsonl" >"$T/tasks-2.jsonl"
stage retry "$T/tasks-2.jsonl"
check 'a start that did not learn its task, at half the rate with twice the steps' 'run = lr=0.0005 generate=copy position=rope steps=18 warmup=4 seed=1' "$(grep '^run' "$T/retry.lab")"
stage retry "$T/tasks.jsonl"
check 'nothing to repeat' '' "$(grep '^run' "$T/retry.lab")"

command='lab/stages.py without results of a scheme'
grep -v 'position = alibi' "$T/two.jsonl" >"$T/some.jsonl"
python3 lab/stages.py 3 "$T/some.jsonl" >"$T/out" 2>"$T/err"
check 'the message' '1 stages.py: there are no results of alibi (run the stage before to its end)' "$? $(cat "$T/err")"
for stage in knobs:ranking-1-knobs:ranking-1 2:ranking-2:ranking-1 3:ranking-3:ranking-2 4:ranking-4:ranking-2 tasks:tasks-2:tasks retry:tasks-3:tasks-2 classify:classify-2:classify; do # the committed experiments follow from the committed results
    name=$(echo "$stage" | cut -d: -f2)
    [ -e "lab/results/$name.lab" ] || continue
    command="lab/results/$name.lab"
    python3 lab/stages.py "${stage%%:*}" "lab/results/${stage##*:}.jsonl" | diff - "lab/results/$name.lab" >"$T/out"
    check 'it follows from the results' '' "$(cat "$T/out")"
done

# lab/ranking.sh runs every stage once, in this order, and its second run trains nothing. A program that writes made-up results stands for relpos.
mkdir -p "$T/stub" "$T/whole" "$T/tree" && ln -s "$PWD/lab" "$PWD/tests" "$T/tree/"
cat >"$T/stub/relpos" <<END
#!/bin/sh
# lab sweep EXPERIMENT -o RESULTS OPTION...
echo "\$(basename "\$3") \$(basename "\$5") \$(shift 5; echo "\$*" | sed 's/--threads 1 *//; s/--keep [^ ]*//')" >>"$T/stub/calls"
case \$(basename "\$3") in
previous.lab | tasks*.lab | classify*.lab) cp "$T/\$(basename "\$5")" "\$5" 2>/dev/null || : >"\$5" ;;
*) grep -q . "\$5" 2>/dev/null && [ "\$(basename "\$3")" != ranking-1-knobs.lab ] || python3 -B tests/lab/fake_ranking.py "\$3" "\$5" --append ;;
esac
END
chmod +x "$T/stub/relpos"
command='lab/ranking.sh'
(cd "$T/tree" && lab/ranking.sh "$T/stub/relpos" "$T/whole" 1 >"$T/out" 2>"$T/err")
check 'exit code' '0 ' "$? $(cat "$T/err")"
check 'its stages' 'ranking.lab ranking-1-knobs.lab ranking-2.lab ranking-3.lab ranking-4.lab ranking-6.lab ranking-7.lab previous.lab previous.lab previous.lab previous.lab previous.lab tasks.lab tasks-2.lab classify.lab classify-2.lab tasks.lab tasks-3.lab' \
    "$(cut -d ' ' -f 1 "$T/stub/calls" | xargs)"
check 'sizes of a step' 5 "$(grep '^previous.lab' "$T/stub/calls" | sort -u | wc -l)"
check 'the state of every stage' 18 "$(grep -c ' --state' "$T/whole/state")"
check 'the trainings of stage 3' 35 "$(wc -l <"$T/whole/ranking-3.jsonl")"

finish
