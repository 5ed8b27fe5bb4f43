#!/bin/sh
# bucket.sh -- test relpos bucket
#
#     tests/cli/bucket.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

prints '-100 15
-50 13
-10 8
-5 5
-1 1
0 0
1 17
5 21
10 24
50 29
100 31' bucket -100 -50 -10 -5 -1 0 1 5 10 50 100
cp "$T/out" "$T/plain"
ok bucket -- -100 -50 -10 -5 -1 0 1 5 10 50 100
same 'with -- and without' "$T/plain" "$T/out"
prints '-100 30
-50 24
-10 10
-5 5
-1 1
0 0
1 0
100 0' bucket --causal -- -100 -50 -10 -5 -1 0 1 100
prints '-9 5
9 13' bucket -9 9 --buckets 16 --max-distance 64
prints '-9223372036854775808 15
9223372036854775807 31' bucket -9223372036854775808 9223372036854775807
prints '-3 3
4 0' bucket --buckets 4 --max-distance 4 --strategy=uniform -3 4 --causal # options may stand between the numbers
ok bucket --buckets 8 --max-distance 16
has '^-16\.\.[-0-9]+ 3$' '^0\.\.0 0$' '^1\.\.1 5$' '\.\.16 7$'
ok bucket -7 --json
has '^\{"buckets": 32, "max_distance": 128, "bidirectional": true, "strategy": "log", "offsets": \[\{"offset": -7, "bucket": 7\}\]\}$'
for number in 0x10 1e3 ' 4' '4 ' 1.0 100000000000000000000 -9223372036854775809 nan '' - +; do
    refused 2 'offset: .*(is not a whole number|is too (large|small))' bucket -- "$number"
    refused 2 '--buckets: .*(is not a whole number|is too (large|small))' bucket 1 --buckets "$number"
done
refusals bucket <<'END'
2 | is not a whole number | 1 2 x 3
2 | buckets | 1 --buckets 1
2 | buckets | 1 --buckets 33
2 | buckets | 1 --buckets -4
2 | max_distance | 1 --max-distance 8
2 | max_distance | 1 --max-distance 0
2 | no strategy is called "cubic" | 1 --strategy cubic
2 | no strategy is called | 1 --strategy log,buckets=4
END

finish
