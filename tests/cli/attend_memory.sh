#!/bin/sh
# attend_memory.sh -- test relpos attend --memory: the bytes of a result do not depend on it, and it is an upper limit
#
#     tests/cli/attend_memory.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh

# 6000 keys of two heads; a range of the smallest possible --memory has one to four times 512 keys.
begin
put k F32 1,2,6000,16 some 0 192000
put v F32 1,2,6000,16 some 120000 192000
put q F32 1,4,90,16 some 300000 5760
put table F32 32,4 some 310000 128
put keys F32 21,16 some 320000 336
put values F32 21,16 some 322000 336
put sink F32 4 some 330000 4
put at I64 1 bytes 8 5910
put kept U8 1,6000 some 5 1500
save "$T/long.safetensors"

# smallest: set $memory to the least --memory of a command
smallest()
{
    refused 1 '--memory: 1048576 bytes are too few \(give at least [0-9]+M; ' attend "$@" --memory 1M
    memory=${said##*at least }
    memory=${memory%%;*}
}

# in_ranges NAME OPTION...: check that the result is the same in ranges of keys
in_ranges()
{
    name=$1
    shift
    smallest "$T/long.safetensors" -o "$T/made/$name.part.safetensors" "$@"
    ok attend "$T/long.safetensors" -o "$T/made/$name.safetensors" "$@"
    ok attend "$T/long.safetensors" -o "$T/made/$name.part.safetensors" "$@" --memory "$memory"
    same "$name in ranges" "$T/made/$name.safetensors" "$T/made/$name.part.safetensors"
    ok attend "$T/long.safetensors" -o "$T/made/$name.part.safetensors" "$@" --memory 1G
    same "$name in one range" "$T/made/$name.safetensors" "$T/made/$name.part.safetensors"
}

in_ranges plain
in_ranges lse --lse --threads 1
in_ranges t5 --bias t5,table=table --causal --q-offset 5910
in_ranges alibi --bias alibi --causal --q-offset at
in_ranges far --bias alibi --q-offset -20 --key-mask kept
in_ranges rope --rope --bias alibi --sink sink --q-offset 3000 --window 2000,900
in_ranges vectors --relkey table=keys,left=10,right=10 --relval table=values,left=10,right=10 --q-offset 5000
in_ranges f64 --dtype f64 --bias alibi --q-offset 100
in_ranges bf16 --dtype bf16 --bias t5,table=table --lse
ok attend "$T/long.safetensors" -o "$T/made/lse.npz" --lse --memory "$memory"
ok attend "$T/long.safetensors" -o "$T/made/whole.npz" --lse
same 'in ranges to .npz' "$T/made/whole.npz" "$T/made/lse.npz"

# The limit holds: 120 MB of keys and values do not fit, because the process may map only 120 MB.
begin
put k F32 1,1,240000,64 zeros 61440000
put v F32 1,1,240000,64 zeros 61440000
put q F32 1,1,10,64 some 0 640
save "$T/large.safetensors"
rm -f "$T/data"
in_little() # in_little ARGUMENT...: like run, with little memory
{
    command="relpos $*, with ulimit -v 120000"
    (ulimit -v 120000 && exec "$program" "$@") >"$T/out" 2>"$T/err"
    code=$?
}
in_little info
if [ $code = 0 ]; then # AddressSanitizer needs more
    in_little attend "$T/large.safetensors" -o "$T/made/large.safetensors" --threads 1
    check 'all keys do not fit' 1 $code
    in_little attend "$T/large.safetensors" -o "$T/made/large.safetensors" --threads 1 --memory 80M
    succeeded
fi
rm -f "$T/large.safetensors"

make_small
make_small_npz
refusals attend <<'END'
2 | --memory: "x" is not a number of bytes \(write it like 512M or 2G\) | "$T/long.safetensors" -o "$T/kept/a.npz" --memory x
2 | --memory: "5MB" is not a number of bytes | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 5MB
2 | --memory: "99999999999999999999" is too large | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 99999999999999999999
2 | --memory: 9999999999 is out of range | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 9999999999G
2 | --memory: --grad needs all keys | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 1G --grad
2 | --memory: --weights needs all keys | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 1G --weights
2 | --memory: --summary needs all keys | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 1G --summary
2 | --memory: standard input cannot be read in parts | - -o "$T/kept/a.npz" --memory 1G
2 | --memory: --isa reference computes all keys in one call | "$T/long.safetensors" -o "$T/kept/a.npz" --memory 1G --isa reference
1 | an .npz file cannot be read in parts | "$small_npz" -o "$T/kept/a.npz" --memory 1G
1 | cannot be opened | "$T/absent.safetensors" -o "$T/kept/a.npz" --memory 1G
END
begin
put k F32 1,1,600,16 zeros 38400
put v F32 1,1,700,16 zeros 44800
put q F32 1,1,3,16 zeros 192
save "$T/uneven.safetensors"
begin
put k F32 1,1,600,16 zeros 38400
put v F32 1,1,600,16 zeros 38400
put q F32 1,1,3,17 zeros 204
save "$T/wide.safetensors"
begin
put k I32 1,1,600,16 zeros 38400
put v F32 1,1,600,16 zeros 38400
put q F32 1,1,3,16 zeros 192
save "$T/whole.safetensors"
refusals attend <<'END'
1 | v: axis 2 has length 700 \(it must be 600, as in k\) | "$T/uneven.safetensors" -o "$T/kept/a.npz" --memory 1G
1 | k: axis 3 has length 16 \(it must be 17, as in q\) | "$T/wide.safetensors" -o "$T/kept/a.npz" --memory 1G
1 | k: its type is i32 | "$T/whole.safetensors" -o "$T/kept/a.npz" --memory 1G
END
finish
