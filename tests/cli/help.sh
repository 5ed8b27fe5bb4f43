#!/bin/sh
# help.sh -- test the names of commands and options. Each help text and its manual page must list the same names.
#
#     tests/cli/help.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
small=examples/data/gettysburg.safetensors

commands='attend explain bias bucket shift verify bench info explore tutorial'
prints "relpos $(sed -n 's/.*RP_VERSION_STRING "\(.*\)"/\1/p' include/relpos/relpos.h)" --version
ok --help
for name in $commands; do
    has "^  $name  *[a-z]"
done
run
check 'without a command, usage on standard error' '2 0 Usage: ' "$code $(($(wc -c <"$T/out"))) $(grep -o 'Usage: ' "$T/err")"
for name in $commands; do
    ok "$name" --help
    check 'help starts with the name and has an example' "relpos $name -- Example:" \
        "$(head -n 1 "$T/out" | grep -o "^relpos $name --") $(sed -n 3p "$T/out")"
    has "^  relpos $name" "^Usage: relpos $name " '^      --help  '
    cp "$T/out" "$T/help.$name"
    refused 2 'no option is called --no-such-thing' "$name" --no-such-thing
done
for word in -h help; do
    ok $word
    has '^Usage: relpos COMMAND'
done
for name in lab t5; do
    ok $name --help
    has "^relpos $name -- " '^Commands:'
    run $name
    check 'without a command, help on standard error' '2 0 1' "$code $(($(wc -l <"$T/out"))) $(grep -c "^relpos $name -- " "$T/err")"
done
ok lab --help
has '^  task = decoder$' '^  preset = '
refusals <<'END'
2 | no command is called "atend".*(relpos|attend) | atend
2 | no command is called "" | ''
2 | did you mean --causal | attend --cuasal
2 | did you mean --softcap | attend --soft 3 # --soft is a prefix of two options
2 | no option is called -z | attend -z
2 | -o needs a value | attend "$small" -o
2 | --scale needs a value | attend "$small" -o "$T/kept/b.npz" --scale
2 | no input file | attend
2 | no output file | attend "$small"
2 | the argument "third" is one too many | attend "$small" third -o "$T/kept/b.npz"
2 | is one too many | info now
END

# The help and the manual page list the same options, terms and masks.
for name in $commands; do
    command="docs/man/relpos-$name.1.scd"
    sed '1,/^Options:/d' "$T/help.$name" | grep -oE -- '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort >"$T/one"
    grep -oE -- '^(\*-[a-z]\*, )?\*--[a-z-]+\*' "docs/man/relpos-$name.1.scd" | grep -oE -- '--[a-z-]+' | sort >"$T/two"
    check 'options of the help and of the page' '' "$(diff "$T/one" "$T/two")"
done
"$program" info | sed -n '/^Position terms/,/^$/s/^  \([a-z0-9][a-z0-9]*\) .*/\1/p' >"$T/terms"
"$program" info | sed -n '/^Masks/,$s/^  \(--[a-z-]*\) .*/\1/p' >"$T/masks"
command='docs/man/relpos.1.scd'
check 'terms and masks of info' "$(grep -c '^RP_X' include/relpos/terms.def) $(grep -c '^RP_X' include/relpos/masks.def)" \
    "$(($(wc -l <"$T/terms"))) $(($(wc -l <"$T/masks")))"
while read -r name; do
    check 'each term and mask has a line' "*$name" "$(grep -oE -m 1 -e "\*$name\b" docs/man/relpos.1.scd | head -n 1)"
done <<END
$(cat "$T/terms" "$T/masks")
END

# The default of --threads: the number of RELPOS_THREADS, or a fixed number.
for name in attend bench 'lab train' 'lab sweep' 'lab eval' 'lab sample' 't5 generate' 't5 encode' 't5 proteins' 't5 verify' 't5 bench'; do
    # shellcheck disable=SC2086
    ok $name --help
    has '^ +--threads N .*(default: RELPOS_THREADS, else|default [0-9])'
done

finish
