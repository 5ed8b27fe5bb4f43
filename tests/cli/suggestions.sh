#!/bin/sh
# suggestions.sh -- misspell every command and every option, and give every option to a command that lacks it. Each error
# suggests the right name.
#
#     tests/cli/suggestions.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

# members GROUP: print the names of the commands in the help of the program, or of a group
members()
{
    "$program" $1 --help | sed -n '/^Commands:/,/^$/s/^  \([a-z0-9]*\) .*/\1/p'
}

# misspelt WORD: print the word with its second letter twice, two letters swapped, one replaced, and in capitals
misspelt()
{
    awk -v w="$1" 'BEGIN { n = length(w); print substr(w, 1, 2) substr(w, 2)
        if (n > 3) { print substr(w, 1, n - 2) substr(w, n, 1) substr(w, n - 1, 1); print substr(w, 1, 1) "_" substr(w, 3) }
        print toupper(w) }' | grep -vxF -e "$1"
}

all=''
for group in '' lab t5; do
    for name in $(members "$group"); do
        full="${group:+$group }$name"
        for word in $(misspelt "$name"); do
            command="relpos $group $word"
            check 'the suggested command' "did you mean relpos $full?" "$("$program" $group "$word" 2>&1 | grep -o 'did you mean [^)]*')"
        done
        case $full in lab | t5) ;; *) all="$all $(echo "$full" | tr ' ' '/')" ;; esac
    done
done
check 'commands' 33 "$(echo $all | wc -w)"
command='a command of another group'
check 'a suggestion' 'relpos t5 generate? relpos attend? relpos lab train?' \
    "$(for words in 'generat' 'lab atend' 't5 train'; do "$program" $words 2>&1 | grep -o 'relpos [a-z0-9 ]*?'; done | xargs)"

command='options as other programs call them'
check 'a suggestion' '--beams --beams --batch --pool --top-k --version --heads' \
    "$(while read -r words; do "$program" $words 2>&1 | grep -o -- '--[a-z-]*\( of relpos bias\)*?' | cut -d' ' -f1 | tr -d '?'; done <<EOF | xargs
t5 generate --num-beams
t5 generate --num_beams
t5 generate --batch-size
t5 encode --pooling
t5 generate --top_k
--versoin
attend --heds
EOF
)"
command='names without a relative'
check 'no suggestion' 0 "$(for words in serve embed 't5 encode --device' 't5 generate --max-length'; do "$program" $words 2>&1; done | grep -c 'did you mean')"

for full in $all; do
    name=$(echo "$full" | tr '/' ' ')
    "$program" $name --help | sed '1,/^Options:/d' | grep -oE -- '^ +(-[a-z], )?--[a-z0-9-]+' | grep -oE -- '--.*' | grep -vx -- --help \
        >"$T/options.$(echo "$full" | tr '/' '.')"
done
# sort the options of all commands as "--option command", and misspell each in one way
for full in $all; do
    name=$(echo "$full" | tr '/' ' ')
    way=0
    while read -r option; do
        case $option in --? | --??) continue ;; esac
        way=$((way + 1))
        word=$(misspelt "${option#--}" | sed -n "$((way % 2 + 1))p")
        command="relpos $name --$word"
        said=$("$program" $name "--$word" 2>&1)
        case $said in
        *"did you mean $option?"*) checks=$((checks + 1)) ;;
        *) check 'the suggested option' "did you mean $option?" "$said" ;;
        esac
    done <"$T/options.$(echo "$full" | tr '/' '.')"
done

# every option of the program, with a command that lacks it
for option in $(sort -u "$T"/options.*); do
    for full in $all; do
        file="$T/options.$(echo "$full" | tr '/' '.')"
        if ! grep -qx -- "$option" "$file" && ! grep -q -- "^$option" "$file"; then
            name=$(echo "$full" | tr '/' ' ')
            command="relpos $name $option"
            check 'its owner' 1 "$("$program" $name "$option" 2>&1 | grep -cE "no option is called $option \(relpos .* ha(s|ve) it\)")"
            break
        fi
    done
done
refusals <<'END'
2 | no option is called --json \(relpos explain, relpos bias and [0-9]+ others have it\) | attend --json
2 | no option is called --dout \(relpos attend reads the array dout from its input file with --grad\) | attend --dout x
2 | no option is called -o \(relpos attend, | bucket -o x
2 | relpos --help lists them | translate
2 | relpos attend --help lists them | attend --zzzzzzzz
END
finish
