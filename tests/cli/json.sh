#!/bin/sh
# json.sh -- test that no command prints NaN or infinity as JSON, which has neither: numbers that are not finite are null, or an error. Test
# that each JSON file that is read has a largest size.
#
#     tests/cli/json.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

# Every number of JSON is written by cli_json_number or lab_number. Other formats with a real number after a name, and other calls of
# jansson that take one, would print nan, or fail.
command='numbers of JSON in the source'
check 'a real number in a format of JSON' '' "$(grep -nE '\\": (\[)?%[-+0-9.*]*[efgEG]' cli/*.c cli/*/*.c)"
check 'json_real outside of lab_number' 'cli/lab/files.c' "$(grep -lE '\<json_real\(' cli/*.c cli/*/*.c models/*/*.c lab/engine/*.c)"
check 'json_pack with f' '' "$(grep -nE 'json_pack\(.*"[^"]*: ?f' cli/*.c cli/*/*.c models/*/*.c)"
check 'json.dump without allow_nan=False' '' "$(for file in bench/*.py lab/*.py lab/report/*.py tools/*.py python/relpos/*.py web/*.py docs/*.py; do
    [ "$(grep -oE 'json\.dumps?\>' "$file" | wc -l)" = "$(grep -o 'allow_nan=False' "$file" | wc -l)" ] || echo "$file"
done)"

# valid WHAT FILE: check that each line is JSON without NaN and Infinity
valid()
{
    check "$1 is JSON" '' "$(python3 -c '
import json, sys
def wrong(word): raise ValueError(word)
for line in open(sys.argv[1]): json.loads(line, parse_constant=wrong)' "$2" 2>&1 | tail -n 1)"
}

# arrays with NaN, infinity and numbers that overflow, as inputs of the commands that print numbers of arrays
python3 - "$T" <<'END'
import struct, sys, zipfile
def save(path, **arrays):
    with zipfile.ZipFile(path, "w") as z:
        for name, (shape, numbers) in arrays.items():
            text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            z.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + struct.pack(f"<{len(numbers)}f", *numbers))
bad = {"nan": float("nan"), "inf": float("inf"), "big": 3e38}
for name, x in bad.items():
    save(f"{sys.argv[1]}/{name}.npz", q=((1, 1, 3, 2), [1, x, 1, 1, x, 1]), k=((1, 1, 3, 2), [x, 1, 1, x, 1, 1]), v=((1, 1, 3, 2), [1, x, 1, 1, 1, -x]),
         table=((1, 32), [x, 1, -x, 2] * 8))
END
for kind in nan inf big; do
    for arguments in "explain --input $T/$kind.npz --json" "explain --input $T/$kind.npz --t5 --table table --json" \
        "explain --input $T/$kind.npz --json --outputs" "bias --t5 --input $T/$kind.npz --q 3 --k 3 --json"; do
        # shellcheck disable=SC2086
        run $arguments
        [ $code = 0 ] || says '^relpos: '
        [ $code != 0 ] || valid "relpos $arguments" "$T/out"
    done
done

# weights that are NaN, or too large: an error that names what is not finite
python3 - "$T" <<'END'
import json, shutil, struct, sys
from pathlib import Path
T = Path(sys.argv[1])
def change(folder, file, name, x):
    shutil.copytree(folder, T / name)
    path = T / name / file
    data = bytearray(path.read_bytes())
    n = struct.unpack("<Q", data[:8])[0]
    for key, t in json.loads(data[8:8 + n]).items():
        if key != "__metadata__":
            a, b = (8 + n + o for o in t["data_offsets"])
            one = struct.pack("<f", x) if t["dtype"] == "F32" else struct.pack("<f", x)[2:] if t["dtype"] == "BF16" else struct.pack("<e", min(x, 6e4))
            data[a:b] = one * ((b - a) // len(one))
    path.write_bytes(data)
for x in ("nan", "inf", "3e38"):
    change("tests/t5/sentence/new", "2_Dense/model.safetensors", f"dense-{x}", float(x))
    change("tests/t5/data/v11", "model.safetensors", f"model-{x}", float(x))
    change("tests/t5/data/proteins/prostt5", "cnn.safetensors", f"cnn-{x}", float(x))
END
printf '3 4\t5 6\n' >"$T/pairs"
refused 1 't5 encode: the vector is not finite' t5 encode "$T/dense-nan" --text a -o "$T/kept/o.jsonl"
refused 1 't5 encode: the vector is not finite' t5 encode "$T/dense-nan" --text a -o "$T/kept/o.npz"
for kind in nan inf; do
    refused 1 '(hidden states|logits) are not finite' t5 encode "$T/model-$kind" --text '3 4' --tokens --pool mean -o "$T/kept/o.jsonl"
    refused 1 '(hidden states|logits) are not finite' t5 score "$T/model-$kind" "$T/pairs" --tokens --json --each
    refused 1 'numbers of classifier.* are NaN or infinite' t5 proteins "$T/cnn-$kind" tests/t5/data/proteins/proteins.fasta --3di -o "$T/kept/o.fasta"
done
for kind in nan inf 3e38; do
    for arguments in "t5 explain $T/model-$kind 3 --tokens --target 4 --json --outputs" "t5 verify $T/model-$kind --text 3 --tokens --json" \
        "t5 score $T/model-$kind $T/pairs --tokens --json --each" "t5 encode $T/dense-$kind --text a -o -" \
        "t5 info $T/model-$kind --json" "t5 bench $T/model-$kind --source 4 --new 1 --repeat 1 --json"; do
        # shellcheck disable=SC2086
        run $arguments
        [ $code = 0 ] || [ -s "$T/out" ] || says '^relpos: '
        valid "relpos $arguments" "$T/out"
    done
done
# A file that is larger than its cap is refused at once, without using memory for its size. The files have holes, so they take no space.
large() # large FOLDER FILE MAX ARGUMENT...: the command refuses the folder if the file is longer than MAX
{
    folder=$1 file=$2 max=$3
    shift 3
    rm -rf "$T/large"
    cp -r "$folder" "$T/large"
    truncate -s $((max + 1)) "$T/large/$file"
    command="relpos $* with a file $file of $((max + 1)) bytes"
    (
        (ulimit -v 1000000 && "$program" --version) >/dev/null 2>&1 && ulimit -v 1000000 # a sanitizer needs more
        "$program" "$@" >"$T/out" 2>"$T/err"
        echo $? >"$T/code"
    )
    check 'exit code' 1 "$(cat "$T/code")"
    says "^relpos: (--tokenizer: )?.*$file: it has $((max + 1)) bytes, and at most $max are read"
}
json=8388608
for file in config.json generation_config.json; do
    large tests/t5/data/t5 $file $json t5 info "$T/large"
done
for file in config.json modules.json config_sentence_transformers.json sentence_bert_config.json 1_Pooling/config.json 2_Dense/config.json; do
    large tests/t5/sentence/new $file $json t5 info "$T/large"
done
for file in tokenizer_config.json added_tokens.json special_tokens_map.json; do
    large tests/t5/data/proteins/prostt5 $file $json t5 tokenize "$T/large" --text M
done
large tests/t5/data/proteins/prostt5 spiece.model 134217728 t5 tokenize "$T/large" --text M
large tests/t5/data/proteins/ankh tokenizer.json 134217728 t5 tokenize "$T/large" --text M
large tests/t5/data/bin pytorch_model.bin.index.json 67108864 t5 info "$T/large"
large tests/t5/data/encoder model.safetensors.index.json 67108864 t5 info "$T/large"

# each command whose numbers are times, counts or speeds
for arguments in 'bench fwd:f32:b1h1q8k8d8 --json' 'info --json' 'verify fwd:f32:b1h1q8k8d8 --json' 'bucket 1 2 --json' \
    't5 bench tests/t5/data/v11 --source 4 --new 0 --repeat 1 --json'; do
    # shellcheck disable=SC2086
    ok $arguments
    valid "relpos $arguments" "$T/out"
done
finish
