#!/bin/sh
# run.sh -- compare relpos attend with numbers that other programs computed (tests/oracle/README.md).
#
#     tests/oracle/run.sh PATH/TO/relpos PATH/TO/cases [PATTERN]      from the root of the project; PATTERN selects cases by name
#
# Each case runs in f64 with its tolerance and again in f32. SPDX-License-Identifier: Apache-2.0
set -u
program=${1:?usage: tests/oracle/run.sh PATH/TO/relpos PATH/TO/cases [PATTERN]}
cases=${2:?usage: tests/oracle/run.sh PATH/TO/relpos PATH/TO/cases [PATTERN]}
pattern=${3:-}
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
failed=0 count=0
awk -F ' *[|] *' '/^[^#]/ { for (n = 0; n < 2; n++) print $1, n ? "f32" : "f64", n && $2 < 3e-5 ? 3e-5 : $2, $3 }' tests/oracle/cases.txt >"$T/cases"
while read -r name type tolerance arguments; do
    case $name in
    *"$pattern"*)
        count=$((count + 1))
        printf '%s %s: ' "$name" "$type"
        # shellcheck disable=SC2086
        "$program" attend "tests/oracle/cases/$name.safetensors" -o "$T/found.safetensors" $arguments --dtype "$type" </dev/null &&
            "$cases" "tests/oracle/cases/$name.safetensors" "$T/found.safetensors" "$tolerance" || {
            failed=$((failed + 1))
            echo "FAILED relpos attend tests/oracle/cases/$name.safetensors $arguments --dtype $type"
        }
        ;;
    esac
done <"$T/cases"
echo "$count comparisons, $failed failed"
[ "$failed" -eq 0 ] && [ "$count" -gt 0 ]
