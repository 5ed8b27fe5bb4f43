#!/bin/sh
# bad_files.sh -- test relpos attend with files that are damaged or inconsistent, or that contain the wrong arrays
#
#     tests/cli/bad_files.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small
make_small_npz

bad_file() # bad_file PATTERN FILE: check that FILE causes an error and the existing output stays
{
    refused 1 "$1" attend "$2" -o "$T/kept/a.npz"
}
bad_file 'no_such\.npz: cannot be opened: No such file' "$T/no_such.npz"
bad_file 'no_such/q\.npz: cannot be opened' "$T/no_such/q.npz"
bad_file 'it is a directory' "$T"
bad_file 'it is a device' /dev/zero
bad_file 'it is a device' /dev/full
bad_file 'it is a device' /dev/null
: >"$T/empty.npz"
: >"$T/empty.safetensors"
mkfifo "$T/fifo.npz"
bad_file 'it is empty' "$T/empty.npz"
bad_file 'it is empty' "$T/empty.safetensors"
bad_file 'it is empty' "$T/fifo.npz" # no process writes to the pipe, and the command must not wait for one
refused 1 'standard input: it is empty' attend - -o "$T/kept/a.npz" <"$T/empty.npz"
ln -s loop "$T/loop"
bad_file 'cannot be opened' "$T/loop"
cp README.md "$T/words.npz" 2>/dev/null || cp CMakeLists.txt "$T/words.npz"
cp "$T/words.npz" "$T/words.safetensors"
cp "$T/words.npz" "$T/words"
bad_file 'words\.npz: ' "$T/words.npz"
bad_file 'words\.safetensors: ' "$T/words.safetensors"
bad_file 'words: it is neither \.npz nor \.safetensors' "$T/words"
cp "$small" "$T/wrong.npz"
cp "$small_npz" "$T/wrong.safetensors"
bad_file 'wrong\.npz: ' "$T/wrong.npz"
bad_file 'wrong\.safetensors: ' "$T/wrong.safetensors"

length=$(($(od -An -t u8 -N 8 "$small"))) size=$(($(wc -c <"$small")))
for cut in 1 7 8 9 20 $((length + 7)) $((length + 8)) $((length + 9)) $((size / 2)) $((size - 1)); do
    head -c $cut "$small" >"$T/cut.safetensors"
    bad_file 'cut\.safetensors: ' "$T/cut.safetensors"
done
size=$(($(wc -c <"$small_npz")))
for cut in 1 3 4 30 $((size / 3)) $((size / 2)) $((size - 100)) $((size - 23)) $((size - 22)) $((size - 21)) $((size - 1)); do
    head -c $cut "$small_npz" >"$T/cut.npz"
    bad_file 'cut\.npz: ' "$T/cut.npz"
    refused 1 'standard input: ' attend - -o "$T/kept/a.npz" <"$T/cut.npz"
done
{ cat "$small"; echo; } >"$T/long.safetensors"
bad_file 'long\.safetensors: ' "$T/long.safetensors"
{ head -c 60 "$small_npz"; printf 'x'; tail -c +62 "$small_npz"; } >"$T/flipped.npz"
bad_file 'flipped\.npz: ' "$T/flipped.npz"
{ head -c 1000 "$small_npz"; printf 'xxxx'; tail -c +1005 "$small_npz"; } >"$T/flipped.npz"
bad_file 'flipped\.npz: .*(CRC|checksum)' "$T/flipped.npz"

# Handmade headers, with 256 bytes of data: 64 numbers.
some 0 64 >"$T/numbers"
header_is() # header_is PATTERN HEADER: check the error for a file with this header
{
    raw "$2" "$T/numbers" "$T/hand.safetensors"
    bad_file "${1:-hand\.safetensors: }" "$T/hand.safetensors"
}
header_is '' ''
header_is '' '{'
header_is '' '[]'
header_is '' 'null'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,9],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,1000,1000],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[2,9223372036854775807],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[2,18446744073709551614],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[-1,-64],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1.0,64],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":["1",64],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,257]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[256,0]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,7],"data_offsets":[0,224]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,7],"data_offsets":[32,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8]}}'
header_is '' '{"q":{"shape":[1,1,8,8],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":7,"shape":[1,1,8,8],"data_offsets":[0,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,4],"data_offsets":[0,128]},"q":{"dtype":"F32","shape":[1,1,8,4],"data_offsets":[128,256]}}'
header_is '' '{"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]},"k":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}}'
header_is '' '{"__metadata__":{"a":1},"q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}}'
header_is 'C64|complex|type' '{"q":{"dtype":"C64","shape":[1,1,4,8],"data_offsets":[0,256]}}'
header_is 'array "q" is not in the file' '{"Q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}}'
header_is 'not in the file \(it has line\\x0afeed, \\x1b\[31mred\)' \
    '{"line\nfeed":{"dtype":"F32","shape":[1,1,8,4],"data_offsets":[0,128]},"\u001b[31mred":{"dtype":"F32","shape":[1,1,8,4],"data_offsets":[128,256]}}'
{ bytes 8 9223372036854775807; printf '{}'; } >"$T/hand.safetensors"
bad_file 'hand\.safetensors: ' "$T/hand.safetensors"
{ printf '\377\377\377\377\377\377\377\377'; printf '{}'; } >"$T/hand.safetensors"
bad_file 'hand\.safetensors: ' "$T/hand.safetensors"

# Handmade .npy headers in a valid archive.
entry_is() # entry_is PATTERN DESCR SHAPE: check the error for an array with this header
{
    zip_begin
    zip_put q "$2" "$3" some 0 64
    zip_save "$T/hand.npz"
    bad_file "$1" "$T/hand.npz"
}
entry_is 'object|pickle' "'|O'" 1,1,4,8
entry_is 'q.*(c8|complex|type)' "'<c8'" 1,1,4,8
entry_is 'q.*(V8|type)' "'<V8'" 1,1,4,8
entry_is 'q.*(U16|type)' "'<U16'" 1,4
entry_is 'q' "[('a', '<f4')]" 64
entry_is 'q' "'<f4'" 1,1,8,9
entry_is 'q' "'<f4'" -1,-64
entry_is 'q' "'<f4'" 4294967296,4294967296
entry_is 'q' "'<f4'" 9223372036854775807,9223372036854775807,2
entry_is 'q' "'<f4'" '64) or __import__("os'
zip_begin
zip_put q "'<f4'" 1,1,8,8 some 0 64
zip_put q "'<f4'" 1,1,8,8 some 0 64
zip_save "$T/twice.npz"
bad_file 'twice\.npz: ' "$T/twice.npz"

# Shapes and types of q, k and v.
three() # three PATTERN TYPE SHAPE TYPE SHAPE TYPE SHAPE: check the error for q, k and v of these types and shapes
{
    pattern3=$1
    shift
    begin
    for letter in q k v; do
        size_of "$1" "$2"
        put $letter "$1" "$2" head -c $size "$text"
        shift 2
    done
    save "$T/three.safetensors"
    bad_file "$pattern3" "$T/three.safetensors"
}
three '^relpos: q: has 3 axes' F32 1,4,8 F32 1,1,4,8 F32 1,1,4,8
three '^relpos: k: has 2 axes' F32 1,1,4,8 F32 4,8 F32 1,1,4,8
three '^relpos: v: has 1 axes' F32 1,1,4,8 F32 1,1,4,8 F32 32
three '"q" has 5 axes' F32 1,1,1,4,8 F32 1,1,4,8 F32 1,1,4,8
three '\bk\b' F32 2,1,4,8 F32 1,1,4,8 F32 2,1,4,8
three '\bv\b' F32 2,1,4,8 F32 2,1,4,8 F32 1,1,4,8
three '\bk\b' F32 1,1,4,8 F32 1,1,4,7 F32 1,1,4,8
three '\bv\b' F32 1,1,4,8 F32 1,1,5,8 F32 1,1,4,8
three 'heads of k' F32 1,3,4,8 F32 1,2,4,8 F32 1,2,4,8
three 'heads of k' F32 1,2,4,8 F32 1,3,4,8 F32 1,3,4,8
three '\bv\b' F32 1,2,4,8 F32 1,2,4,8 F32 1,1,4,8
three 'q: has an axis of length 0' F32 0,1,4,8 F32 0,1,4,8 F32 0,1,4,8
three 'q: has an axis of length 0' F32 1,1,4,0 F32 1,1,4,0 F32 1,1,4,8
three 'v: has an axis of length 0' F32 1,1,4,8 F32 1,1,4,8 F32 1,1,4,0
three '\bq\b.*(i32|int|type)' I32 1,1,4,8 F32 1,1,4,8 F32 1,1,4,8
three '\bk\b.*(u8|int|type)' F32 1,1,4,8 U8 1,1,4,8 F32 1,1,4,8
three '\bv\b.*(bool|int|type)' F32 1,1,4,8 F32 1,1,4,8 BOOL 1,1,4,8
begin
put q F32 1,1,4,8 some 0 32
put k F32 1,1,4,8 some 0 32
save "$T/two.safetensors"
bad_file 'array "v" is not in the file \(it has q, k\)' "$T/two.safetensors"

finish
