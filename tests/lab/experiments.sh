#!/bin/sh
# experiments.sh -- test the experiments included with the source, and lab/all.sh
#
#     tests/lab/experiments.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh

# the experiments included with the source
for file in lab/*.lab; do
    if grep -q '^vary\|^run' "$file"; then
        ok lab sweep "$file" --list
        ok lab sweep "$file" --list --quick
    else
        set -- # use pairs included with the source instead of those that lab/phonemes.sh downloads
        [ "$file" != lab/phonemes.lab ] || set -- --set text=lab/data/numbers.txt --set valid=lab/data/numbers.txt
        ok lab train "$file" -o "$T/own.$(basename "$file")" --until 0 "$@"
    fi
done

# lab/all.sh reports a missing dependency of the page before it trains
mkdir "$T/bin"
printf '#!/bin/sh\nexit 1\n' >"$T/bin/python3"
chmod +x "$T/bin/python3"
command='lab/all.sh without matplotlib'
PATH="$T/bin:$PATH" lab/all.sh /bin/true "$T/all" --quick >"$T/out" 2>"$T/err"
check 'exit code and message' "1 all.sh: the page needs matplotlib (install Debian's python3-matplotlib)" "$? $(cat "$T/err")"
check 'nothing was started' no "$([ -e "$T/all" ] && echo yes || echo no)"

finish
