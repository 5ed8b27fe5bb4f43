#!/bin/sh
# streams.sh -- test standard streams that are full, closed or broken, colours, and locales
#
#     tests/cli/streams.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
prepare plain

command='relpos info >/dev/full'
"$program" info >/dev/full 2>"$T/err"
check 'a full standard output' '1 1' "$? $(grep -c '^relpos: standard output: No space left' "$T/err")"
command='relpos attend -o - >/dev/full'
"$program" attend "$small" -o - >/dev/full 2>"$T/err"
check 'a full standard output' '1 1' "$? $(grep -c '^relpos: standard output: .*No space left' "$T/err")"
for words in '--version' '--help' 'info' 'info --json' 'explain' 'bucket 1 2' 'bias log' 'attend --help'; do
    command="relpos $words >&-"
    # shellcheck disable=SC2086
    "$program" $words >&- 2>"$T/err"
    check 'a closed standard output is a failure' '1 1' "$? $(grep -c '^relpos: standard output: ' "$T/err")"
done
command='relpos attend -o - >&-'
"$program" attend "$small" -o - >&- 2>"$T/err"
check 'a closed standard output is a failure' '1 1' "$? $(grep -c '^relpos: standard output: ' "$T/err")"
command='relpos attend - <&-'
"$program" attend - -o "$T/made/closed.safetensors" <&- 2>"$T/err"
check 'a closed standard input' '1 1' "$? $(grep -c '^relpos: standard input: ' "$T/err")"
command='relpos attend with everything closed'
"$program" attend "$small" -o "$T/made/closed.safetensors" <&- >&- 2>&-
check 'the file is still written' 0 "$?"
equal closed plain
"$program" attend "$T/no_such.npz" -o "$T/made/closed.safetensors" <&- >&- 2>&-
check 'a failure with a closed standard error' 1 "$?"
equal closed plain
for words in 'bias alibi --q 200 --k 200 -o -' 'bias log --q 100 --k 100 --json' "attend $text -o -"; do
    command="relpos $words | head -c 1"
    # shellcheck disable=SC2086
    { "$program" $words 2>"$T/err"; echo $? >"$T/code"; } | head -c 1 >/dev/null
    check 'a broken pipe is a failure, not a signal' 1 "$(cat "$T/code")"
    check 'and prints at most one line' '' "$(tail -n +2 "$T/err")"
done
command='relpos ... 2>/dev/full'
"$program" attend "$T/no_such.npz" -o "$T/made/closed.safetensors" 2>/dev/full
check 'a full standard error' 1 "$?"

# The program prints colours only to terminals.
for setting in TERM=xterm-256color TERM=dumb NO_COLOR=1; do
    command="$setting relpos explain"
    env "$setting" "$program" explain >"$T/one"
    env "$setting" "$program" bias alibi >>"$T/one"
    check 'no colours outside a terminal' 0 "$(grep -c "$(printf '\033')" "$T/one")"
done
if script -qec true /dev/null >/dev/null 2>&1; then # script(1) provides a terminal
    for words in explain 'bias alibi --q 8 --k 8'; do
        for setting in TERM=xterm TERM=dumb 'TERM=xterm NO_COLOR=1' 'TERM=xterm NO_COLOR='; do
            case $setting in TERM=xterm | *NO_COLOR=) expected=coloured ;; *) expected=plain ;; esac
            command="$setting relpos $words"
            # shellcheck disable=SC2086
            env $setting script -qec "'$program' $words" "$T/typed" >/dev/null
            check 'colours on a terminal' $expected "$(grep -q "$(printf '\033')\\[" "$T/typed" && echo coloured || echo plain)"
        done
    done
fi

# The program reads and prints numbers in the same format in every locale.
for locale in $(locale -a 2>/dev/null | grep -iE '^(de_DE|fr_FR)\.?utf-?8$'); do
    command="LC_ALL=$locale"
    LC_ALL=$locale "$program" attend "$small" -o "$T/made/locale.safetensors" --scale 0.25 --bias log,lambda=0.3
    attend_to country --scale 0.25 --bias log,lambda=0.3
    equal locale country
    LC_ALL=$locale "$program" explain >"$T/one"
    ok explain
    same 'explain' "$T/one" "$T/out"
done

finish
