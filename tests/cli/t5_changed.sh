#!/bin/sh
# t5_changed.sh -- test what relpos t5 does if a file of the model becomes shorter while it is mapped. tests/faults/shrink.c
# shortens it as soon as it is mapped.
#
#     tests/cli/t5_changed.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
shrink=${program%/*}/tests/shrink.so
data=$PWD/tests/t5/data

# changed FILE BYTES PATTERN MODEL ARGUMENT...: run a command on a copy of the model while FILE, which is in it, becomes BYTES long, or
# shorter by -BYTES. There is one error, which names the file, and neither an output nor a temporary file.
changed()
{
    changing=$1 bytes=$2 pattern=$3 model=$4
    shift 4
    rm -rf "$T/model" "$T"/made/*
    cp -r "$model" "$T/model"
    command="SHRINK=$changing SHRINK_TO=$bytes relpos $*"
    ASAN_OPTIONS=verify_asan_link_order=0:$ASAN_OPTIONS LD_PRELOAD=$shrink SHRINK=/$changing SHRINK_TO=$bytes "$program" "$@" >"$T/out" 2>"$T/err"
    code=$?
    check 'exit code' 1 "$code"
    read_error
    check 'lines on standard error' 1 "$lines"
    says "^relpos: (line 1, of . tokens: |t5 [a-z]*: |--head: )?[^ ]*/$changing: ($pattern)"
    check 'no file' '' "$(ls -A "$T/made")"
}

# Each format of weights, and a file of each kind beside them. A file that loses a page raises SIGBUS; one that loses its last bytes reads
# as zeros, and is found to be changed.
short='it became shorter while it was in use'
any="$short|it was changed while it was in use"
printf '1 2 3\n4 5\n' >"$T/lines"
for model in "t5 model.safetensors" "switch model.safetensors" "bin pytorch_model-00002-of-00002.bin" "f16 model.safetensors" \
    "proteins/prott5 model.safetensors"; do
    folder=${model% *} file=${model#* }
    changed model/$file 0 "$short" "$data/$folder" t5 encode "$T/model" "$T/lines" --tokens -o "$T/made/o.npz"
    changed model/$file -10 "$any" "$data/$folder" t5 encode "$T/model" "$T/lines" --tokens -o "$T/made/o.npz"
done
for file in "$data/single/plain.safetensors" "$data/single/wan.pth" tests/t5/gguf/q4.gguf tests/t5/gguf/t5.gguf; do
    changed model 0 "$short" "$file" t5 encode "$T/model" "$T/lines" --tokens -o "$T/made/o.npz"
    changed model -10 "$any" "$file" t5 encode "$T/model" "$T/lines" --tokens -o "$T/made/o.npz"
done
changed model/config.json 0 "$short" "$data/t5" t5 encode "$T/model" "$T/lines" --tokens -o "$T/made/o.npz"
changed model/tokenizer.json 0 "$short" "$data/proteins/ankh" t5 tokenize "$T/model" --text M
changed model/spiece.model 0 "$short" "$data/proteins/prott5" t5 tokenize "$T/model" --text M
changed model/pytorch_model.bin.index.json 0 "$short" "$data/bin" t5 encode "$T/model" "$T/lines" --tokens -o "$T/made/o.npz"
changed 2_Dense/model.safetensors 0 "$short" tests/t5/sentence/new t5 encode "$T/model" --text a -o "$T/made/o.npz"
changed 2_Dense/model.safetensors -10 "$any" tests/t5/sentence/new t5 encode "$T/model" --text a -o "$T/made/o.npz"
changed model/cnn.safetensors 0 "$short" "$data/proteins/prostt5" t5 proteins "$T/model" "$data/proteins/proteins.fasta" --3di -o "$T/made/o.fasta"
changed model/cnn.safetensors -10 "$any" "$data/proteins/prostt5" t5 proteins "$T/model" "$data/proteins/proteins.fasta" --3di -o "$T/made/o.fasta"

# each command with a packed model, whose weights stay mapped
ok t5 pack "$data/v11" -o "$T/packed"
printf '1 2\t3 4\n' >"$T/pairs"
for bytes in 4096 -10; do
    while read -r arguments; do
        # shellcheck disable=SC2086
        changed model $bytes "$any" "$T/packed" t5 ${arguments%% *} "$T/model" $(printf '%s ' ${arguments#* } | sed "s#@#$T/#g")
    done <<END
encode @lines --tokens -o @made/o.npz
encode @lines --tokens -o @made/o.jsonl
generate @lines --tokens --max-new-tokens 4
generate @lines --tokens --max-new-tokens 4 --beams 2
score @pairs --tokens
explain 3 --tokens --target 4
verify @pairs --tokens
bench --source 8 --new 2
END
done
changed model 0 "$short" "$T/packed" t5 info "$T/model"

# a signal that another process sends still ends the program
sleep 5 | "$program" t5 generate "$T/packed" --tokens 2>"$T/err" &
child=$!
sleep 0.5
pid=$(pgrep -n -f "$program t5 generate $T/packed --tokens" || :)
[ -z "$pid" ] || kill -BUS "$pid"
wait $child
check 'exit code after kill -BUS' 135 $?
finish
