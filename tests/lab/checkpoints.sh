#!/bin/sh
# checkpoints.sh -- test that no training progress is lost if a checkpoint is damaged, unreadable or too large for the disk
#
#     tests/lab/checkpoints.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_stopped

# a damaged checkpoint is reported, and the previous checkpoint is used
cp -r "$T/three" "$T/four"
printf 'X' | dd of="$T/four/checkpoint.safetensors" bs=1 seek=9000 conv=notrunc 2>"$T/dd"
run lab train "$T/small.lab" -o "$T/four" --resume
check 'it continues' 0 "$code"
check 'the message' 'damaged: its checksum' "$(grep -oE 'damaged: its checksum' "$T/err")"
check 'the damaged one is kept and does not replace a good one' 1 "$(grep -c 'the damaged file is now damaged.safetensors' "$T/err")"
ok lab eval "$T/four/previous.safetensors"
refused 1 'damaged: its checksum' lab eval "$T/four/damaged.safetensors"
same 'the same bytes' "$T/run/checkpoint.safetensors" "$T/four/checkpoint.safetensors"
cp -r "$T/three" "$T/five"
head -c 700 "$T/three/checkpoint.safetensors" >"$T/five/checkpoint.safetensors"
cp "$T/five/checkpoint.safetensors" "$T/five/previous.safetensors"
refused 1 'checkpoint.safetensors' lab train "$T/small.lab" -o "$T/five" --resume

# an unreadable checkpoint may be intact, so older weights must not replace it
for kind in loop folder memory; do
    cp -r "$T/three" "$T/$kind" && rm "$T/$kind/checkpoint.safetensors"
    case $kind in
    loop) ln -s checkpoint.safetensors "$T/$kind/checkpoint.safetensors" && why='cannot be opened: Too many levels' ;;
    folder) mkdir "$T/$kind/checkpoint.safetensors" && why='it is a directory' ;;
    memory) ln -s /proc/self/mem "$T/$kind/checkpoint.safetensors" && why='cannot be read: Input/output error' ;;
    esac
    for word in eval sample inspect; do
        refused 1 "$kind/checkpoint.safetensors: $why" lab $word "$T/$kind"
    done
    refused 1 "$kind/checkpoint.safetensors: $why" lab train "$T/small.lab" -o "$T/$kind" --resume
    refused 1 'it already has a run' lab train "$T/small.lab" -o "$T/$kind"
    same 'the same bytes' "$T/three/previous.safetensors" "$T/$kind/previous.safetensors"
done
cp -r "$T/three" "$T/absent" && rm "$T/absent/checkpoint.safetensors"
run lab eval "$T/absent" # a missing checkpoint is replaced by the previous one
check 'the previous one is used' '0 1' "$code $(grep -c 'cannot be opened: No such file.*using the previous checkpoint' "$T/err")"
cp -r "$T/three" "$T/log" 
ln -sf log.jsonl "$T/log/log.jsonl"
refused 1 'log.jsonl: it is a symbolic link, but the log must be a regular file' lab train "$T/small.lab" -o "$T/log" --resume

# The log must be a regular file of the run: if it is a link, the target is not overwritten; if it is a pipe, the run does
# not wait for a reader.
printf 'mine\n' >"$T/mine.txt"
for kind in link dangling pipe name; do
    mkdir "$T/$kind.run"
    case $kind in
    link) ln -s "$T/mine.txt" "$T/link.run/log.jsonl" && why='a symbolic link' ;;
    dangling) ln -s "$T/none.txt" "$T/dangling.run/log.jsonl" && why='a symbolic link' ;;
    pipe) mkfifo "$T/pipe.run/log.jsonl" && why='not a regular file' ;;
    name) ln "$T/mine.txt" "$T/name.run/log.jsonl" && why= ;;
    esac
    if [ -n "$why" ]; then
        refused 1 "log.jsonl: it is $why, but the log must be a regular file \\(remove it" lab train "$T/small.lab" -o "$T/$kind.run" --until 1
    else
        ok lab train "$T/small.lab" -o "$T/$kind.run" --until 1 # with a hard link, the run writes a new file under the name
    fi
done
check 'targets of links' "mine no" "$(cat "$T/mine.txt") $([ -e "$T/none.txt" ] && echo yes || echo no)"
cp -r "$T/three" "$T/linked"
mv "$T/linked/log.jsonl" "$T/elsewhere.jsonl"
ln -s "$T/elsewhere.jsonl" "$T/linked/log.jsonl"
cp "$T/elsewhere.jsonl" "$T/elsewhere.before"
refused 1 'log.jsonl: it is a symbolic link' lab train "$T/small.lab" -o "$T/linked" --resume
same 'the log elsewhere' "$T/elsewhere.before" "$T/elsewhere.jsonl"

# A limit on file sizes simulates a full disk. The existing files stay.
ok lab train "$T/small.lab" -o "$T/six" --until 8 --set checkpoint_every=0
cp "$T/six/checkpoint.safetensors" "$T/six.before"
command='relpos lab train, with files of 8 KiB at most'
(ulimit -f 16 && "$program" lab train "$T/small.lab" -o "$T/six" --resume) >"$T/out" 2>"$T/err"
check 'exit code' 1 $?
check 'the message' 'cannot be written' "$(grep -oE 'cannot be written' "$T/err")"
same 'the same bytes' "$T/six.before" "$T/six/checkpoint.safetensors"
check 'no other file is left' 'checkpoint.safetensors log.jsonl' "$(cd "$T/six" && echo *)"

# a loss that is NaN or infinite stops the run
refused 1 'step [0-9]+: the (loss|norm of the gradients) is .*(the last checkpoint is of step 4|there is no checkpoint yet)' \
    lab train "$T/small.lab" -o "$T/nan" --set lr=100 --set lr_min=100 --set clip=0 --set warmup=0 --set steps=400 --set checkpoint_every=4 \
    --set weight_decay=100

finish
