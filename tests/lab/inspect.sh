#!/bin/sh
# inspect.sh -- relpos lab inspect, compared with relpos attend
#
#     tests/lab/inspect.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

# The weights of each query sum to one. ALiBi subtracts its slope times the distance from every score, and a model without
# positions adds nothing. The mean weights match those of attend.
numbers() # numbers FILE HEAD KEY: print a list of the first layer, one number per line
{
    sed 's/.*"layers":\[\[//' "$1" | tr '{' '\n' | sed -n "$(($2 + 2))p" | sed "s/.*\"$3\":\[\([^]]*\).*/\1/" | tr ',' '\n'
}
ok lab train "$T/small.lab" -o "$T/alibi" --set position=alibi --set steps=3
ok lab inspect "$T/alibi" --bytes 32 --json
cp "$T/out" "$T/inspect.json"
check 'each query has a weight of one' 1 "$(numbers "$T/inspect.json" 1 weight |
    awk '{ sum += $1 * (16 - n++) / 16 } END { print(n == 16 && (sum - 1) ^ 2 < 1e-12) }')"
check 'the slopes of two heads, 1/16 and 1/256' 1 "$({ numbers "$T/inspect.json" 0 position; numbers "$T/inspect.json" 1 position; } |
    awk '{ n++; want = n <= 16 ? -(n - 1) / 16 : -(n - 17) / 256; if (($1 - want) ^ 2 > 1e-20) wrong = 1 } END { print(n == 32 && !wrong) }')"
check 'equal for all pairs' 1 "$(numbers "$T/inspect.json" 0 spread | awk '{ if ($1 > 1e-6) wrong = 1 } END { print(NR == 16 && !wrong) }')"
ok lab train "$T/small.lab" -o "$T/plain" --set position=none --set steps=3
ok lab inspect "$T/plain" --bytes 16
check 'two heads, part 0' 2 "$(grep -cE '^    0    [01]         0.0 ' "$T/out")"
printf 'In a larger sense we have no way' >"$T/some.txt"
ok lab inspect "$T/run" --text "$T/some.txt" --length 32 --json
numbers "$T/out" 1 weight >"$T/mean.lab"
ok lab export "$T/run" --prompt 'In a larger sense we have no way' -o "$T/some.safetensors"
sed "s|OUT|$T/profile.safetensors --summary|; s|^relpos ||" "$T/out" >"$T/options"
# shellcheck disable=SC2046
"$program" $(cat "$T/options") >"$T/out" 2>"$T/err"
check 'mean weights match attend: the largest difference is below 32 roundings' 1 "$(python3 - "$T/profile.safetensors" "$T/mean.lab" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
at = json.loads(data[8:8 + size])["profile"]
a, b = (8 + size + x for x in at["data_offsets"])
kind = {"F32": "f", "F64": "d"}[at["dtype"]]
profile = struct.unpack(f"<{(b - a) // struct.calcsize(kind)}{kind}", data[a:b])
mine = [float(x) for x in open(sys.argv[2])]
theirs = profile[63:126][31::-1]
print(int(len(mine) == 32 and max(abs(x - y) for x, y in zip(mine, theirs)) < 32 * 2**-24))
END
)"
refused 1 'text: it has 32 bytes, but the length is 33' lab inspect "$T/run" --text "$T/some.txt" --length 33
refused 2 'no run' lab inspect

finish
