#!/bin/sh
# run.sh -- run the lines of rows.tsv, except those in Python, which python/tests/test_texts.py and test_torch_texts.py run
#
#     tests/texts/run.sh PATH/TO/relpos FOLDER        FOLDER has the programs of examples/s0.c ... s4.c
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
examples=${2:?usage: $0 PATH/TO/relpos FOLDER}
# shellcheck disable=SC2034 # for the commands of lines
root=$PWD rows=$PWD/tests/texts/rows.tsv
# Commands use a copy of the program, which finds its examples as an installed one does, and run in an empty folder.
mkdir -p "$T/installed/bin" "$T/installed/share/doc/relpos"
cp "$program" "$T/installed/bin/relpos"
ln -s "$PWD/examples" "$T/installed/share/doc/relpos/examples"
program=$T/installed/bin/relpos

# words FILE...: set $text to the words of files, with one space between and around them
words()
{
    text=" $(cat -- "$@" | tr -s ' \n\t' '   ') "
}

# in_order EXPECTED: check that $text has these words in this order, where " ... " stands for any words between
in_order()
{
    rest=$text pieces="$1 ... "
    while [ "$pieces" ]; do
        piece=${pieces%%" ... "*} pieces=${pieces#*" ... "}
        case $rest in
        *" $piece "*) rest=" ${rest#*" $piece "}" ;;
        *)
            check "$what" "$piece" "$(printf %s "$text" | cut -c 1-1500)"
            return
            ;;
        esac
    done
    check "$what" '' ''
}

count=0 texts=''
tab=$(printf '\t')
while IFS=$tab read -r of what kind line wanted_words more; do
    case $of in '' | '#'*) continue ;; esac
    count=$((count + 1)) texts="$texts $of" command="$kind: $line"
    if [ ! "$wanted_words" ] || [ "$more" ]; then check "$what: five columns" '' "$wanted_words $more"; fi
    case $kind in
    cli) # a command, in an empty folder: what it prints, or the words of its error
        cd "$T/made" || exit 1
        case $wanted_words in
        'refused: '*)
            eval "refused 2 '' $line" </dev/null
            words "$T/err"
            in_order "${wanted_words#refused: }"
            ;;
        *)
            eval "run $line" </dev/null
            check "$what: exit code" 0 "$code"
            words "$T/out"
            in_order "$wanted_words"
            ;;
        esac
        cd "$root" || exit 1
        ;;
    c) # an example with its arguments, and functions that it calls: what it prints
        name=${line%% *}
        arguments=''
        for word in ${line#"$name"}; do
            case $word in
            rp_*)
                check "$what: $word in examples/$name.c" 1 "$(grep -cw -- "$word" "examples/$name.c" | sed 's/[1-9][0-9]*/1/')"
                check "$what: $word in the headers" 1 "$(cat include/relpos/*.h include/relpos/*.def | grep -cw -- "$word" | sed 's/[1-9][0-9]*/1/')"
                ;;
            *) arguments="$arguments $word" ;;
            esac
        done
        # shellcheck disable=SC2086
        "$examples/$name" $arguments >"$T/out" 2>&1
        check "$what: exit code" 0 $?
        words "$T/out"
        in_order "$wanted_words"
        ;;
    page) # a file and a function of web/tests, which tests a view: words of the function
        file=web/tests/${line%% *} function=${line##* }
        check "$what: run.py imports it" 1 "$(grep -cE "^from ${line%%.py *} import (.*, )?$function(,|\$)" web/tests/run.py)"
        sed -n "/^def $function(/,/^def [^(]*(\(browser\|page\))/p" "$file" >"$T/out"
        words "$T/out"
        in_order "$wanted_words"
        ;;
    docs) # a file: its words
        words "$line"
        in_order "$wanted_words"
        ;;
    python | torch) ;;
    *) check "$what: kind" 'cli, c, page, docs, python or torch' "$kind" ;;
    esac
done <"$rows"

[ "$count" -ge 118 ]
check 'lines of rows.tsv, 118 or more' 0 $?
for name in s0 s1 s2 s3 s4 all; do
    case " $texts " in *" $name "*) found=$name ;; *) found='' ;; esac
    check 'a line of each text' $name "$found"
done
finish
