#!/bin/sh
# report.sh -- test relpos lab report
#
#     tests/lab/report.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_results

ok lab report "$T/results.jsonl"
check 'a row' 1 "$(grep -cE '^\| position_layers = shared \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \|.* [0-9]+ \|$' "$T/out")"
check 'the rise' 1 "$(grep -cE '^\| position_layers = own \| [-+][0-9.]+ % \|$' "$T/out")"
sed 's/"length":16/"length":128/; s/{"from":0,"to":16,/{"from":0,"to":64,"perplexity":9},{"from":64,"to":128,/' "$T/results.jsonl" \
    >"$T/long.jsonl"
ok lab report "$T/long.jsonl"
check 'no text about a missing picture' 0 "$(grep -c '^By position' "$T/out")"
# The means rise from 3 (2 and 4) to 5 (6 and 4), by 66.7 %. The report shows this rise, not the mean of the rises of the
# two starts.
sed 's/"length":16,\(.*\)"perplexity":[0-9.]*,"bits\(.*\)"perplexity":[0-9.]*,"bits/"length":16,\1"perplexity":2,"bits\2"perplexity":6,"bits/' "$T/results.jsonl" |
    awk '/"seed":2/ {gsub(/"perplexity":[26],/, "\"perplexity\":4,")} {print}' >"$T/rise.jsonl"
ok lab report "$T/rise.jsonl"
check 'the rise is computed from the means' 1 "$(grep -c '^| position_layers = own | +66.7 % |' "$T/out")"
refused 1 'nothing.jsonl: cannot be read' lab report "$T/nothing.jsonl"
refused 1 'small.lab:1: not a result' lab report "$T/small.lab"
refused 1 'x.pdf: neither .html nor .md' lab report "$T/results.jsonl" -o "$T/x.pdf"

# Schemes trained at a single learning rate are not ranked, and the page begins with a note about this.
mkdir "$T/rates"
sed 's/\\nposition = [^\\]*/\\nposition = alibi/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/rates/length.jsonl"
ok lab report "$T/rates/length.jsonl"
check 'one learning rate' 1 "$(sed 1q "$T/out" | grep -c '^> Preliminary: one learning rate for all, undertrained\..* do not rank positions, because')"
sed 's/\\nlr = [^\\]*/\\nlr = 0.5/' "$T/rates/length.jsonl" >"$T/rates/rate.jsonl"
cat "$T/rates/length.jsonl" "$T/rates/rate.jsonl" >"$T/rates/both.jsonl"
ok lab report "$T/rates/both.jsonl"
check 'several rates for each' 1 "$(sed 1q "$T/out" | grep -c '^> Preliminary: few learning rates for each, undertrained\.')"
sed 's/\\nposition = [^\\]*/\\nposition = alibi/; s/\\nlr = [^\\]*/\\nlr = 0.5/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/rates/each.jsonl"
ok lab report "$T/rates/each.jsonl"
check 'a rate for each' 1 "$(sed 1q "$T/out" | grep -c '^> Preliminary: one learning rate for each, undertrained\.')"
ok lab report "$T/results.jsonl"
check 'one position' 0 "$(grep -c Preliminary "$T/out")"

# published numbers appear beside measured ones only at the same multiples of the trained length
mkdir "$T/print"
awk '/"seed":1/ {a = 5; b = 6} /"seed":2/ {a = 4; b = 4.4}
    {sub(/"perplexity":[0-9.]*/, "\"perplexity\":" a); sub(/"length":32,"loss":[0-9.]*,"perplexity":[0-9.]*/, "\"length\":32,\"loss\":1,\"perplexity\":" b); print}' \
    "$T/rates/length.jsonl" | grep 'position = alibi' | grep 'layers = own' |
    sed 's/"vary":{[^}]*}/"vary":{"position":"alibi"}/' >"$T/print/length.jsonl"
ok lab report "$T/print/length.jsonl"
check 'alibi at twice the length' 1 "$(grep -cF '| +4 % | +5 % | +15.6 % (+10.0 to +20.0) |' "$T/out")"
sed 's/"length":32/"length":48/' "$T/print/length.jsonl" >"$T/print/three.jsonl"
mv "$T/print/three.jsonl" "$T/print/length.jsonl"
ok lab report "$T/print/length.jsonl"
check 'nothing is printed for three times' 0 "$(grep -c 'Beside published numbers' "$T/out")"

# the number of weights, from the shapes that the library reports
"$program" info --json >"$T/print/terms.jsonl"
ok lab report "$T/print/terms.jsonl"
check 'every number matches the published one' '13 13' "$(grep -cE '^\|.*\| [0-9,]+ \| [0-9,]+ \|$' "$T/out") $(grep -cE '^\|.*\| ([0-9,]+) \| \1 \|$' "$T/out")"
check 'Shaw' 1 "$(grep -cF '[H?, left+right+1, Dk] + [H?, left+right+1, Dv] | 16,512 | 16,512 |' "$T/out")"
sed 's/"\[buckets, H\]"/"[buckets, H, 2]"/' "$T/print/terms.jsonl" >"$T/print/other.jsonl"
mv "$T/print/other.jsonl" "$T/print/terms.jsonl"
ok lab report "$T/print/terms.jsonl"
check 'another shape gives another number' 1 "$(grep -cF '| 768 | 384 |' "$T/out")"

# the times of attention alone
forward()
{
    printf '{"forward":"%s","batch":32,"length":512,"heads":12,"width":64,"ms":%s,"ratio":[%s],"machine":{"threads":1,"version":"0","isa":"x","blas":"y"}}\n' "$@"
}
{ forward none 100 1,1,1; forward t5,bidirectional=0 104 1.03,1.04,1.05; } >"$T/print/forward.jsonl"
ok lab report "$T/print/forward.jsonl"
check 't5' 1 "$(grep -cF '| t5 | 104.0 ms | +4.0 % (+3.0 to +5.0) | +1.79 % |' "$T/out")"
check 'the claim holds' 1 "$(grep -c 'adds less than 5 %. Here none of these adds more.' "$T/out")"
forward rope 106 1.05,1.06,1.07 >>"$T/print/forward.jsonl"
ok lab report "$T/print/forward.jsonl"
check 'the claim does not hold' 1 "$(grep -c 'adds less than 5 %. Here rope adds more.' "$T/out")"
check 'a link to the other terms' 1 "$(grep -c 'docs/costs.md has the others' "$T/out")"
forward rope 106 1.05,0 >>"$T/print/forward.jsonl"
refused 1 'forward.jsonl:4: not a result of lab/forward.py: ratio is' lab report "$T/print/forward.jsonl"

# quantiles of Student's t, from a published table
command='quantiles of lab/report/intervals.py'
check 'Student' '12.706 3.182 2.040 1.960' "$(python3 -B -c 'import sys; sys.path.insert(0, "lab/report"); import intervals
print(*(f"{intervals.quantile(n):.3f}" for n in (1, 3, 31, 100000)))')"

# the starts of an experiment are averaged, separately from those of other experiments
ok lab report "$T/results.jsonl"
cp "$T/out" "$T/table"
cat "$T/results.jsonl" "$T/results.jsonl" >"$T/mixed.jsonl"
ok lab report "$T/mixed.jsonl"
same 'the same bytes' "$T/out" "$T/table" # each result counts once
sed '2s/"train_loss":[0-9.]*/"train_loss":1.5/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:6: the same experiment and seed as line 2, but another train_loss' lab report "$T/mixed.jsonl"
sed 's/steps = 3/steps = 4/' "$T/results.jsonl" | cat "$T/results.jsonl" - >"$T/mixed.jsonl"
ok lab report "$T/mixed.jsonl"
check 'other steps are a separate row' '2 2' "$(grep -c '^| position_layers = shared, steps = 3 |' "$T/out") $(grep -c '^| position_layers = shared, steps = 4 |' "$T/out")"
check 'with two starts' 1 "$(grep -c '^Means over 2 starts' "$T/out")"
ok lab report "$T/classes.jsonl"
check 'seeds that vary are starts' '1 1' "$(grep -c '^Means over 2 starts' "$T/out") $(grep -c '^| all |' "$T/out")"
for position in t5 t5,bidirectional=0; do
    sed "s/position = [^\\\\]*/position = $position/; s/\"vary\":{[^}]*}/\"vary\":{\"position\":\"$position\"}/" "$T/results.jsonl" | head -n 1
done >"$T/mixed.jsonl"
ok lab report "$T/mixed.jsonl"
check 'two terms with the same short name' '1 1' "$(grep -c '^| t5 | [0-9.]* |' "$T/out") $(grep -c '^| t5,bidirectional=0 | [0-9.]* |' "$T/out")"

cp "$T/results.jsonl" "$T/overhead.jsonl"
refused 1 'overhead.jsonl:1: no result without positions at length 16' lab report "$T/overhead.jsonl"
sed 's/position = [^\]*/position = none/; s/"vary":{[^}]*}/"vary":{"position":"none"}/' "$T/results.jsonl" | grep 'layers = own' >"$T/overhead.jsonl"
mkdir "$T/cells"
ok lab report "$T/overhead.jsonl" # the report reads the length from the experiment
check 'the cost of nothing' 1 "$(grep -cE '^\| none \| [0-9.]+ ms \|' "$T/out")"
check 'its starts' 1 "$(grep -c 'There are 2 starts of each\. Without' "$T/out")"
(
    cat "$T/overhead.jsonl"
    sed 's/position = none/position = alibi/; s/"position":"none"/"position":"alibi"/' "$T/overhead.jsonl" | head -n 1
    sed 's/length = 16/length = 32/' "$T/overhead.jsonl" | tail -n 1
) >"$T/cells/overhead.jsonl"
ok lab report "$T/cells/overhead.jsonl"
check 'starts of cells that differ' '1 1 1' "$(grep -c 'There are 2 starts at 16, 1 start at 32 except where' "$T/out") $(grep -c 'ms, measured once, at 32' "$T/out") $(
    grep -cE '^\| alibi \| [-+0-9.]+ %, 1 start \|  \|' "$T/out")"
timed() # timed POSITION MS...: print one result for each time of a training step at length 512
{
    position=$1
    shift
    for ms in "$@"; do
        sed -n 1p "$T/overhead.jsonl" | sed "s/length = 16/length = 512/; s/seed = 1/seed = $ms/; s/position = none/position = $position/; s/\"none\"/\"$position\"/
            s/\"ms_per_step\":[0-9.e+-]*/\"ms_per_step\":$ms/"
    done
}
{ timed none 100 120; timed t5 104; timed rope 110; timed xl 130; } >"$T/cells/overhead.jsonl"
ok lab report "$T/cells/overhead.jsonl"
check 'above 5 %, and above the spread' 1 "$(grep -c '^At 512, these positions added 5 % or more: rope, xl\. Of these, xl took longer than any step' "$T/out")"
sed -i 's/"processor_share":[0-9.e+-]*/"processor_share":0.95/; s/"threads":[0-9]*/"threads":1/; /rope\|xl\|seed = 120/s/"processor_share":0.95/"processor_share":0.8/' "$T/cells/overhead.jsonl"
ok lab report "$T/cells/overhead.jsonl"
check 'contended times are not timings' '3 2' "$(sed -n 's/^\([0-9]*\) of 5 trainings were contended.*/\1/p' "$T/out") $(grep -cE '^\| (rope|xl) \| contended \|' "$T/out")"
head -n 3 "$T/results.jsonl" >"$T/part.jsonl"
ok lab report "$T/part.jsonl"
check 'a column of starts where they differ' '1 1' "$(grep -c '^| *| starts |' "$T/out") $(grep -c '^| position_layers = shared | 1 |' "$T/out")"
if [ -w /dev/full ]; then
    "$program" lab report "$T/results.jsonl" >/dev/full 2>"$T/err"
    check 'a full disk' '1 relpos: standard output: No space left on device (free some space, or write elsewhere)' "$? $(cat "$T/err")"
fi
# the page shows names literally, even if they contain markup
printed=$(python3 -B -c 'import sys; sys.path.insert(0, "lab/report"); import page
page = page.Page(None)
page.heading("a *b*")
page.table(["x|y"], [["<img src=x>"], ["[a](b)"], ["max_distance = 3"], ["&lt;"]])
print(page.finish())')
command='names of Markdown'
check 'escaped' '## a \*b\* | x\|y | | --- | | &lt;img src=x> | | [a\](b) | | max_distance = 3 | | &amp;lt; |' "$(echo $printed)"
# only the page and its pictures are written, and other users can read them
mkdir "$T/links"
echo kept >"$T/links/kept"
for name in page.md.new page-1.svg.new page.md page-1.svg; do
    ln -s kept "$T/links/$name"
done
command='write of lab/report/page.py'
(umask 027 && python3 -B -c 'import pathlib, sys; sys.path.insert(0, "lab/report"); import page
page.write({pathlib.Path(sys.argv[1], name): name for name in ("page.md", "page-1.svg")})' "$T/links")
check 'the targets of links stay' kept "$(cat "$T/links/kept")"
# temporary files of a killed process are removed, unless another process has locked them
printed=$(python3 -B -c 'import fcntl, os, pathlib, sys; sys.path.insert(0, "lab/report"); import page
def killed():
    page.os.replace = lambda *a: os._exit(9)
    page.write({pathlib.Path(sys.argv[1], "left.md"): "x"})
def left():
    return len(list(pathlib.Path(sys.argv[1]).glob(".relpos-*")))
os.waitpid(os.fork() or killed(), 0)
one = left()
held = open(next(pathlib.Path(sys.argv[1]).glob(".relpos-*")))
fcntl.flock(held, fcntl.LOCK_EX)
page.write({pathlib.Path(sys.argv[1], "left.md"): "x"})
two = left()
held.close()
page.write({pathlib.Path(sys.argv[1], "left.md"): "x"})
print(one, two, left())
os.unlink(pathlib.Path(sys.argv[1], "left.md"))' "$T/links")
check 'left by a killed process, while it is locked, and after' '1 1 0' "$printed"
check 'the existing files, the page and its picture' 'kept page-1.svg page-1.svg.new page.md page.md.new ' "$(ls -A "$T/links" | tr '\n' ' ')"
check 'modes by the umask' '640 640 ' "$(stat -c %a "$T/links/page.md" "$T/links/page-1.svg" | tr '\n' ' ')"
if python3 -c 'import matplotlib' 2>/dev/null; then
    ok lab report "$T/results.jsonl" -o "$T/page.html"
    check 'pictures' 1 "$(grep -c '<svg' "$T/page.html")"
    ok lab report "$T/results.jsonl" -o "$T/page.md"
    check 'a picture' 1 "$(grep -c '!\[.*\](page-1.svg)' "$T/page.md" && test -s "$T/page-1.svg")"
    check 'its size' 1 "$(grep -c "each was trained on at most 96 tokens" "$T/page.md")"
    ok lab report "$T/long.jsonl" -o "$T/long.md"
    check 'by position, with a picture' 1 "$(grep -A 2 '^By position in windows of 128' "$T/long.md" | grep -c '(long-2.svg)')"
    sed '1s/"to":64,"perplexity":[^}]*/"to":64,"perplexity":null/' "$T/long.jsonl" >"$T/rise.jsonl"
    ok lab report "$T/rise.jsonl" -o "$T/long.md"
    check 'a perplexity that is not a number' 1 "$(grep -c '>none<' "$T/long-2.svg")"
    mkdir -p "$T/pages/x.md"
    refused 1 'x.md: cannot be written' lab report "$T/results.jsonl" -o "$T/pages/x.md"
    check 'no picture without its page' x.md "$(ls -A "$T/pages")"
else
    refused 1 'charts need matplotlib' lab report "$T/results.jsonl" -o "$T/page.html"
fi

finish
