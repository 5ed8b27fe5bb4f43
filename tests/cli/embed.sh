#!/bin/sh
# embed.sh -- test relpos embed with many texts: interrupted runs continue with the same bytes, and memory does not grow with the file
#
#     tests/cli/embed.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
model=tests/encoder/texts/search

awk 'BEGIN { srand(3); for (k = 0; k < 900; k++) { n = 1 + int(rand() * 12)
    for (i = 0; i < n; i++) printf "%s ", substr("the cat sleeps a dog where is it", 1 + int(rand() * 20), 3 + int(rand() * 9)); print "" } }' >"$T/texts"

# does ARGUMENT...: run the command, and check that it succeeds; it may say that it continues
does()
{
    run embed "$@"
    check 'exit code' 0 "$code"
}
does $model "$T/texts" -o "$T/made/whole.npz"
does $model "$T/texts" -o "$T/made/whole.safetensors"
does $model "$T/texts" -o "$T/made/whole.jsonl"
check 'only the output' 'whole.jsonl whole.npz whole.safetensors ' "$(ls "$T/made" | tr '\n' ' ')"
does $model "$T/texts" -o "$T/made/b.npz" --threads 1
same 'one thread' "$T/made/whole.npz" "$T/made/b.npz"

# a run that fails in line 901 leaves the vectors before it, and the next one continues with the same bytes, whatever bytes are left
{ cat "$T/texts"; printf 'bad \0 line\n'; } >"$T/bad"
run embed $model "$T/bad" -o "$T/made/cut.npz"
check 'exit code' 1 "$code"
says '^relpos: line 901: it has a NUL byte'
says 'embed: 512 vectors are in .*made/cut.npz.part; the same command continues after them$'
check 'no output' 'cut.npz.part' "$(ls "$T/made" | grep cut)"
cp "$T/made/cut.npz.part" "$T/part"
size=$(wc -c <"$T/part")
for suffix in npz safetensors jsonl; do
    for keep in 0 250 300 3000 7000 20000 $((size - 1)) "$size"; do
        head -c "$keep" "$T/part" >"$T/made/cut.$suffix.part"
        does $model "$T/texts" -o "$T/made/cut.$suffix"
        same "continued after $keep bytes" "$T/made/whole.$suffix" "$T/made/cut.$suffix"
        check 'no .part' "cut.$suffix" "$(ls "$T/made" | grep "cut.$suffix")"
    done
    says 'embed: 512 vectors are in .*part, and are not computed again$'
    rm "$T/made/cut.$suffix"
done
rm -f "$T"/made/cut*
{ head -c 7000 "$T/part"; printf 'damaged!'; tail -c +7009 "$T/part"; } >"$T/made/cut.npz.part"
does $model "$T/texts" -o "$T/made/cut.npz"
says 'embed: 64 vectors are in'
same 'a damaged array' "$T/made/whole.npz" "$T/made/cut.npz"

# what does not continue is refused, and OUT.part stays
# stays PATTERN ARGUMENT...: check that a run with OUT.part is refused, and does not change it
stays()
{
    cp "$T/part" "$T/made/cut.npz.part"
    pattern=$1
    shift
    rm -f "$T/made/cut.npz"
    run embed "$@" -o "$T/made/cut.npz"
    check 'exit code' 1 "$code"
    says "^relpos: $pattern"
    same 'OUT.part' "$T/part" "$T/made/cut.npz.part"
    check 'no output' 'cut.npz.part' "$(ls "$T/made" | grep cut)"
}
stays '-o: .*cut.npz.part: it was written with relpos embed: model [0-9a-f]{16} as f16, .*, but this run has relpos embed: model [0-9a-f]{16} as q8' \
    $model "$T/texts" --type q8
stays '-o: .*cut.npz.part: it was written with .* no --normalize, .*, but this run has .* as f16, --normalize, and' $model "$T/texts" --normalize
stays '-o: .*cut.npz.part: it was written with .* no --prefix, but this run has .* and "a " before each text' $model "$T/texts" --prefix 'a '
stays '-o: .*cut.npz.part: it was written with' tests/encoder/texts/asymmetric "$T/texts"
mkdir "$T/changed"
cp -r $model/* "$T/changed"
sed 's/"layer_norm_eps": [0-9.e-]*/"layer_norm_eps": 0.5/' $model/config.json >"$T/changed/config.json"
check 'another config.json' 1 "$(cmp -s $model/config.json "$T/changed/config.json" || echo 1)"
stays '-o: .*cut.npz.part: it was written with' "$T/changed" "$T/texts"
sed '70s/$/./' "$T/texts" >"$T/other"
stays '-o: .*cut.npz.part: its vectors 65 to 128 are of other texts \(give the same texts' $model "$T/other"
head -n 500 "$T/texts" >"$T/fewer"
stays 'embed: there are only 500 texts, but the numbers of 512 are known' $model "$T/fewer"
printf 'something else' >"$T/made/z.npz.part"
run embed $model "$T/texts" -o "$T/made/z.npz"
check 'exit code' 1 "$code"
says 'z.npz.part: it exists, and this command did not write it'
check 'and stays' 'something else' "$(cat "$T/made/z.npz.part")"

# signals, while texts come from a pipe; a second process cannot write the same file
mkfifo "$T/pipe"
for signal in KILL TERM; do
    rm -f "$T"/made/cut*
    "$program" embed $model - -o "$T/made/cut.npz" <"$T/pipe" >"$T/out" 2>"$T/err" &
    job=$!
    exec 9>"$T/pipe"
    head -n 600 "$T/texts" >&9
    waited=0
    while [ "$(wc -c 2>/dev/null <"$T/made/cut.npz.part" || echo 0)" -lt $((size - 1500)) ] && [ $waited -lt 100 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    run embed $model "$T/texts" -o "$T/made/cut.npz"
    check 'exit code of another process' 1 "$code"
    says 'another process is writing it'
    kill -s $signal $job
    wait $job 2>/dev/null
    exec 9>&-
    does $model "$T/texts" -o "$T/made/cut.npz"
    says 'embed: 512 vectors are in'
    same "after SIG$signal" "$T/made/whole.npz" "$T/made/cut.npz"
done

# memory: a model whose vectors have 8,192 numbers. 1,500 texts more are 49 MB of vectors.
mkdir "$T/wide"
cp -r tests/encoder/texts/asymmetric/* "$T/wide"
python3 - "$T" "$program" <<'PY' >"$T/out" 2>"$T/err"
import json, os, pathlib, struct, subprocess, sys
to, program = pathlib.Path(sys.argv[1]), sys.argv[2]
dense = to / "wide/2_Dense"
config = json.load(open(dense / "config.json"))
rows, columns = 8192, config["in_features"]
json.dump(config | {"out_features": rows, "bias": False}, open(dense / "config.json", "w"))
size = 4 * rows * columns
header = json.dumps({"linear.weight": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, size]}}).encode()
header += b" " * (-len(header) % 8)
numbers = b"".join(struct.pack("<f", (k * 37 % 101) / 64 - 0.75) for k in range(rows * columns))
(dense / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + numbers)
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
def peak(n, suffix):
    (to / "many").write_text("a cat\n" * n)
    child = subprocess.Popen([program, "embed", to / "wide", to / "many", "-o", to / f"made/wide.{suffix}", "--threads", "2"])
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, status
    (to / f"made/wide.{suffix}").unlink()
    return usage.ru_maxrss / 1000
for suffix in ("npz", "safetensors", "jsonl"):
    few, many = peak(600, suffix), peak(2100, suffix)
    print(suffix, "grows" if many > few + 6 else "does not grow", f"({few:.0f} MB, {many:.0f} MB)")
PY
command='embed with a wide model'
check 'peak memory' 'npz does not grow;safetensors does not grow;jsonl does not grow;' "$(sed 's/ (.*/;/' "$T/out" | tr -d '\n')"
finish
