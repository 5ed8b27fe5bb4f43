#!/bin/sh
# completion.sh -- test completion: bash completes commands and options, and each script has all that --help lists
#
#     tests/cli/completion.sh PATH/TO/relpos
#
# Needs bash. SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

for shell in bash zsh fish; do
    ok info --completion $shell
    cp "$T/out" "$T/$shell"
done
refused 2 'no script for "csh" .choose bash, zsh or fish' info --completion csh
refused 2 '--completion prints a script and nothing else .leave out --json' info --completion bash --json
refused 2 '--completion prints a script and nothing else .leave out --measure' info --measure --completion bash

# listed: the options of the last help, in alphabetical order
listed()
{
    sed '1,/^Options:/d' "$T/out" | sed -nE 's/^ +(-[a-z0-9], +)?--([a-z0-9-]+).*/--\2/p' | sort
}
# members: the commands of the last help
members()
{
    sed '1,/^Commands:/d; /^$/,$d' "$T/out" | sed -nE 's/^  ([a-z0-9]+) .*/\1/p' | sort
}

# All places: what --help lists there, one line each: the command or group, |, names in alphabetical order.
ok --help
members >"$T/top"
: >"$T/places"
for name in $(cat "$T/top"); do
    ok $name --help
    members >"$T/members"
    if [ -s "$T/members" ]; then
        for member in $(cat "$T/members"); do
            ok $name $member --help
            echo "$name $member|$(listed | tr '\n' ' ')" >>"$T/places"
        done
        echo "$name|$( (cat "$T/members"; echo --help) | LC_ALL=C sort | tr '\n' ' ')" >>"$T/places"
    else
        echo "$name|$(listed | tr '\n' ' ')" >>"$T/places"
    fi
done
echo "|$( (cat "$T/top"; echo --help; echo --version) | LC_ALL=C sort | tr '\n' ' ')" >>"$T/places"
check 'number of places' yes "$([ $(($(wc -l <"$T/places"))) -ge 30 ] && echo yes)"

# What bash completes after each: the words that begin with -, and for groups all words
cat >"$T/complete.sh" <<'END'
. "$1"
complete_at() # complete_at WORD...: print what the last word becomes
{
    COMP_WORDS=(relpos "$@") COMP_CWORD=$# COMPREPLY=()
    _relpos
    printf '%s\n' "${COMPREPLY[@]}"
}
while IFS='|' read -r place names; do
    case " $names" in *' -'*' '[a-z]* | *' '[a-z]*' -'*) word= ;; *) word=- ;; esac
    printf '%s|' "$place"
    { complete_at $place "$word"; [ -n "$word" ] || complete_at $place -; } | LC_ALL=C sort -u | tr '\n' ' '
    echo
done <"$2"
printf '%s\n' "att: $(complete_at att)" "softcap-: $(complete_at attend --softcap-)" "lab tr: $(complete_at lab tr)" \
    "query: $(complete_at t5 explain tests --q)" "file: $(complete_at attend te)" "value: $(complete_at attend -o ou)" >&2
complete -p relpos >&2
END
command='completion in bash'
bash "$T/complete.sh" "$T/bash" "$T/places" >"$T/found" 2>"$T/words"
check 'what bash completes' '' "$(diff "$T/places" "$T/found")"
check 'words' "$(printf '%s\n' 'att: attend' 'softcap-: --softcap-after' 'lab tr: train' 'query: --query' 'file: ' 'value: ' 'complete -o default -F _relpos relpos')" \
    "$(cat "$T/words")"

# zsh and fish have the same, in their own form
while IFS='|' read -r place names; do
    sed -n "/^'$place')\$/,/;;\$/p" "$T/zsh" | sed -nE "s/^ +'([a-z0-9-]+):.*/\1/p; s/^ +'\*(--[a-z0-9-]+).*/\1/p" | sort >"$T/one"
    command="zsh: relpos $place"
    check 'names' "$names" "$(tr '\n' ' ' <"$T/one")"
    sed -nE "s/^complete -c relpos -n '__relpos_at $place' (-f -a |-l )([a-z0-9-]+).*/\1\2/p" "$T/fish" | sed 's/^-f -a //; s/^-l /--/' | sort >"$T/one"
    command="fish: relpos $place"
    check 'names' "$names" "$(tr '\n' ' ' <"$T/one")"
done <"$T/places"

finish
