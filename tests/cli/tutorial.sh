#!/bin/sh
# tutorial.sh -- test relpos tutorial: steps without an explanation have the printed numbers, and steps with one do not. The commands
# that a step names print the first row of its numbers.
#
#     tests/cli/tutorial.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

ok tutorial
check 'the list names the texts' 's0 s1 s2 s3 s4' "$(sed -n 's/^\(s[0-9]\)  .*/\1/p' "$T/out" | tr '\n' ' ' | sed 's/ $//')"
ok tutorial --json
check 'the list as JSON' '{"tutorials": [{"name": "s0"' "$(cut -c 1-28 "$T/out")"
for name in s0 s1 s2 s3 s4; do
    ok tutorial $name --json
    cp "$T/out" "$T/json"
    check 'unequal numbers without a reason' '0' "$(grep -o '"equal": false, "why": null' "$T/json" | grep -c .)"
    check 'a reason for equal numbers' '0' "$(grep -o '"equal": true, "why": "' "$T/json" | grep -c .)"
    check 'numbers are finite' '0' "$(grep -ci '[^a-z]nan[^a-z]' "$T/json")"
    ok tutorial $name
    cp "$T/out" "$T/text"
    steps=$(grep -o '"what"' "$T/json" | grep -c .)
    check 'steps of the text and of JSON' "$steps" "$(grep -c '^[0-9]*\. ' "$T/text")"
    check 'steps that are said to be wrong' "$(grep -c '^  why' "$T/text")" \
        "$(sed -n 's/^[0-9]* steps; \([0-9]*\) .* wrong in the text\.$/\1/p' "$T/text")"
    command="the commands of relpos tutorial $name"
    check 'each prints the first row of its numbers' '' "$(python3 tests/cli/tutorial.py "$program" "$T/json")"
done
ok tutorial s0
check 'a row of weights' '1' "$(grep -c '^     0.1473  0.3253  0.1747  0.1603  0.1924$' "$T/out")"
refused 2 'tutorial: no text is called "s9"' tutorial s9
finish
