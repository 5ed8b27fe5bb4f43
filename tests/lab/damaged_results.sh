#!/bin/sh
# damaged_results.sh -- test relpos lab report with damaged results
#
#     tests/lab/damaged_results.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_results

# damaged PATTERN NAME SED-EXPRESSION FROM: change the second line of the results FROM with sed, and check the
# error
damaged()
{
    mkdir -p "$T/damaged"
    sed "2$3" "$4" >"$T/damaged/$2.jsonl"
    refused 1 "damaged/$2.jsonl:2: not a result of .*: $1 \(" lab report "$T/results.jsonl" "$T/damaged/$2.jsonl"
    check 'nothing is printed' 0 "$(wc -c <"$T/out")"
}
damaged 'not JSON' sweep 's/.....$//' "$T/results.jsonl"
damaged 'the line is 5, not an object' sweep 's/.*/5/' "$T/results.jsonl"
damaged 'experiment is missing' sweep 's/"experiment"/"x"/' "$T/results.jsonl"
damaged 'experiment is ".*\.\.\., not an experiment' sweep 's/seed = /sead = /' "$T/results.jsonl"
damaged 'vary is missing' sweep 's/"vary"/"x"/' "$T/results.jsonl"
damaged 'vary is 3, not an object of texts' sweep 's/"vary":{[^}]*}/"vary":3/' "$T/results.jsonl"
damaged 'lengths is \[\], not a list that is not empty' sweep 's/"lengths":.*,"weights"/"lengths":[],"weights"/' "$T/results.jsonl"
damaged 'lengths is 5, not a list that is not empty' sweep 's/"lengths":.*,"weights"/"lengths":5,"weights"/' "$T/results.jsonl"
damaged 'lengths\[1\].perplexity is missing' sweep 's/"perplexity"\(:[^,]*,"bits\)/"x"\1/2' "$T/results.jsonl"
damaged 'lengths\[0\].perplexity is 0, not a number above 0' sweep 's/"perplexity":[0-9.e+]*/"perplexity":0/' "$T/results.jsonl"
damaged 'position_weights is "many", not an integer' sweep 's/"position_weights":[0-9]*/"position_weights":"many"/' "$T/results.jsonl"
damaged 'not JSON' sweep 's/"weights":[0-9]*/"weights":NaN/' "$T/results.jsonl"
damaged 'machine.isa is missing' sweep 's/"isa"/"x"/' "$T/results.jsonl"
damaged 'trained is missing' inspect 's/.*/{"inspect":"t5"}/' lab/results/inspect.jsonl
damaged 'layers\[0\]\[0\].position is \[1\], not a list of 72' inspect 's/"position":[^]]*]/"position":[1]/' lab/results/inspect.jsonl
damaged 'batch is missing' oracle 's/.*/{"oracle":"t5"}/' lab/results/oracle.jsonl
damaged 'torch_ms is \[1.5\], not a list of 3' oracle 's/"torch_ms": [^]]*]/"torch_ms":[1.5]/' lab/results/oracle.jsonl
cat "$T/results.jsonl" "$T/classes.jsonl" >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:5: task is classifier, but that of line 1 is decoder' lab report "$T/mixed.jsonl"
sed '2s/"length":32/"length":64/' "$T/results.jsonl" >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:2: eval_lengths are 16, 64, but those of line 1 are 16, 32' lab report "$T/mixed.jsonl"
sed '2s/"to":16/"to":15/' "$T/results.jsonl" >"$T/mixed.jsonl"
refused 1 'mixed.jsonl:2: positions of length 16 differ from those' lab report "$T/mixed.jsonl"

finish
