#!/bin/sh
# cli.sh -- the program as its users run it: numbers, files, pipes, and every refusal.
#
#     tests/cli.sh PATH/TO/relpos        from the root of the project; needs coreutils, sed, grep, awk, gzip, cmp
#
# A check that fails prints the command, what was expected and what was found. Input files are made here, byte by byte:
# .safetensors is a line of text before raw numbers, and a stored .npz is little more.
# SPDX-License-Identifier: Apache-2.0
set -u
program=${1:?usage: tests/cli.sh PATH/TO/relpos}
. tests/checks.sh
ASAN_OPTIONS=allocator_may_return_null=1:${ASAN_OPTIONS-} # memory that cannot be had is an error to report, not the end
export ASAN_OPTIONS
text=examples/data/gettysburg.safetensors
commands='attend explain bias bucket verify bench info explore'

# ---------------------------------------------------------------------------------------------------- asserting

# same WHAT FILE FILE: byte for byte
same()
{
    check "$1" '' "$(cmp -- "$2" "$3" 2>&1)"
}

# run ARGUMENT...: leaves $T/out, $T/err, $code
run()
{
    command="relpos $*"
    timeout 100 "$program" "$@" >"$T/out" 2>"$T/err"
    code=$?
}

# ok ARGUMENT...: exit code 0, and nothing on standard error
ok()
{
    run "$@"
    check 'it succeeds in silence' '0 ' "$code $(head -n 3 "$T/err")"
}

# prints TEXT ARGUMENT...: the same, and TEXT on standard output
prints()
{
    printed=$1
    shift
    ok "$@"
    check 'standard output' "$printed" "$(cat "$T/out")"
}

# has PATTERN...: the last output has lines that match these extended regular expressions
has()
{
    for pattern; do
        check 'a line of the output' "$pattern" "$(if grep -qE -e "$pattern" "$T/out"; then printf '%s' "$pattern"; else head -n 3 "$T/out"; fi)"
    done
}

kept() # what is in $T/kept, by name and content
{
    find "$T/kept" ! -type f | sort
    find "$T/kept" -type f -exec cksum {} + | sort
}

# refused CODE PATTERN ARGUMENT...: that exit code; one line on standard error, which matches; nothing on standard output;
# the files of $T/kept are as before, and there is no other. Messages that do not say how to mend are kept for the end.
refused()
{
    wanted=$1 pattern=$2
    shift 2
    run "$@"
    said=$(cat "$T/err")
    check 'exit code' "$wanted" "$code"
    check 'lines on standard error, bytes on standard output' '1 0' "$(($(wc -l <"$T/err"))) $(($(wc -c <"$T/out")))"
    case $said in 'relpos: '*) said_first='relpos: ' ;; *) said_first=$said ;; esac
    check 'start of the message' 'relpos: ' "$said_first"
    check 'message' "$pattern" "$(if grep -qE -e "$pattern" "$T/err"; then printf '%s' "$pattern"; else cat "$T/err"; fi)"
    case $said in *' ('*')') ;; *) sed "s|$T/||g" "$T/err" >>"$T/no_mend" ;; esac
    now=$(kept)
    check 'existing files' "$kept" "$now"
    kept=$now
}

# ---------------------------------------------------------------------------------------------------- making files

# bytes WIDTH NUMBER...: whole numbers from 0, least byte first
bytes()
{
    width=$1
    shift
    # shellcheck disable=SC2059
    printf "$(printf '%s\n' "$@" | awk -v w="$width" '{ for (n = 0; n < w; n++) { printf "\\%03o", $1 % 256; $1 = int($1 / 256) } }')"
}

# f32 NUMBER...: also nan, inf, -inf
f32()
{
    # shellcheck disable=SC2059
    printf "$(printf '%s\n' "$@" | awk '
        $1 == "nan"  { printf "\\000\\000\\300\\177"; next }
        $1 == "inf"  { printf "\\000\\000\\200\\177"; next }
        $1 == "-inf" { printf "\\000\\000\\200\\377"; next }
        {
            sign = $1 < 0; x = sign ? -$1 : $1; bits = 0
            if (x > 0) {
                for (e = 127; x >= 2; e++) x /= 2
                for (; x < 1; e--) x *= 2
                bits = e * 8388608 + int((x - 1) * 8388608 + 0.5)
            }
            bits += sign * 2147483648
            for (n = 0; n < 4; n++) { printf "\\%03o", bits % 256; bits = int(bits / 256) }
        }')"
}

some() # some FROM N: n numbers in f32 out of the middle of a trained network
{
    tail -c +$((200001 + 4 * $1)) "$text" | head -c $((4 * $2))
}

zeros() # zeros BYTES
{
    head -c "$1" /dev/zero
}

# A .safetensors file: begin, put NAME DTYPE SHAPE (data from standard input)..., save FILE. What has been put so far is in
# files, for put stands at the end of a pipe.
begin()
{
    : >"$T/header"
    : >"$T/data"
}
put()
{
    from=$(($(wc -c <"$T/data")))
    cat >>"$T/data"
    [ -s "$T/header" ] && printf ',' >>"$T/header"
    printf '"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' "$1" "$2" "$3" $from $(($(wc -c <"$T/data"))) >>"$T/header"
}
save()
{
    raw "{$(cat "$T/header")}" "$T/data" "$1"
}
raw() # raw HEADER DATAFILE FILE: any text at all before the data
{
    { bytes 8 ${#1}; printf '%s' "$1"; cat "$2"; } >"$3"
}

# A stored .npz: zip_begin, zip_put NAME DESCR SHAPE (data from standard input)..., zip_save FILE. gzip knows the CRC-32.
zip_begin()
{
    : >"$T/zip"
    : >"$T/directory"
    : >"$T/entries"
}
zip_put()
{
    { # magic, version 1.0, length of the header, header, data
        npy="{'descr': $2, 'fortran_order': False, 'shape': ($3), }"
        printf '\223NUMPY\001\000'
        bytes 2 ${#npy}
        printf '%s' "$npy"
        cat
    } >"$T/piece"
    size=$(($(wc -c <"$T/piece"))) where=$(($(wc -c <"$T/zip"))) name=$1.npy
    {
        bytes 2 20 0 0 0 33 # version, flags, method (stored), time, date
        gzip -c <"$T/piece" | tail -c 8 | head -c 4
        bytes 4 $size $size
        bytes 2 ${#name} 0
    } >"$T/entry"
    echo "$name" >>"$T/entries"
    { printf 'PK\003\004'; cat "$T/entry"; printf '%s' "$name"; cat "$T/piece"; } >>"$T/zip"
    { printf 'PK\001\002'; bytes 2 20; cat "$T/entry"; bytes 2 0 0 0; bytes 4 0 $where; printf '%s' "$name"; } >>"$T/directory"
}
zip_save()
{
    {
        cat "$T/zip" "$T/directory"
        printf 'PK\005\006'
        bytes 2 0 0 $(($(wc -l <"$T/entries"))) $(($(wc -l <"$T/entries")))
        bytes 4 $(($(wc -c <"$T/directory"))) $(($(wc -c <"$T/zip")))
        bytes 2 0
    } >"$1"
}

# numbers FILE.safetensors NAME: the numbers of an array in f32 or f64, one a line
numbers()
{
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    # shellcheck disable=SC2046
    set -- "$1" $(head -c $((length + 8)) "$1" | tail -c +9 |
        sed -n 's/.*"'"$2"'":{"dtype":"F\([0-9]*\)","shape":\[[0-9,]*\],"data_offsets":\[\([0-9]*\),\([0-9]*\)\]}.*/\1 \2 \3/p')
    [ $# = 4 ] || { echo "no such array"; return; }
    od -An -v -w$(($2 / 8)) -t f$(($2 / 8)) -j $((8 + length + $3)) -N $(($4 - $3)) "$1" | tr -d ' '
}

# near WHAT TOLERANCE FILE NAME FILE NAME: two arrays of equal length, element by element
near()
{
    numbers "$3" "$4" >"$T/one"
    numbers "$5" "$6" >"$T/two"
    check "$1: $4 is near $6" near "$(paste "$T/one" "$T/two" | awk -v most="$2" '
        { d = $1 - $2; d = d < 0 ? -d : d; if (NF != 2 || ($1 != $2 && !(d <= most))) { print NR ": " $1 " and " $2; exit } n = NR }
        END { if (n && n == NR) print "near" }')"
}

# The inputs that most checks share: 2 batch entries, 4 heads over 2, 7 queries, 9 keys, width 8, values of width 5.
small=$T/small.safetensors
begin
some 0 448 | put q F32 2,4,7,8
some 5000 288 | put k F32 2,2,9,8
some 9000 180 | put v F32 2,2,9,5
some 100 32 | put table F32 4,8 # left=3, right=4
some 200 128 | put t5 F32 32,4
some 400 32 | put t5_one F32 32,1
f32 0.5 0.25 0.125 0.0625 | put slopes F32 4
some 500 252 | put dense F32 4,7,9
zeros 252 | put nothing F32 7,9
some 900 64 | put keys F32 8,8
some 1000 256 | put keys_h F32 4,8,8
some 1300 40 | put values F32 8,5
f32 nan inf -inf 0 | put bad F32 4
f32 1 1 1 1 0 1 1 0 1 | put real F32 9
bytes 8 9 4 | put lengths I64 2
bytes 8 0 0 | put no_keys I64 2
bytes 4 9 4 | put lengths4 I32 2
for type in I64:8 U64:8 I32:4 U32:4 I16:2 U16:2 I8:1 U8:1 BOOL:1; do
    bytes ${type#*:} 1 1 0 1 1 1 0 1 1 0 1 1 1 1 1 1 1 0 | put "key_${type%:*}" "${type%:*}" 2,9
done
bytes 1 1 2 0 255 1 1 0 1 1 0 3 1 1 1 1 1 1 0 | put key_odd U8 2,9 # any non-zero is true
bytes 1 1 1 0 1 1 1 1 0 1 | put row BOOL 9
zeros 63 | put none BOOL 7,9
bytes 1 1 1 1 0 0 0 0 1 1 1 0 0 0 0 1 1 1 0 0 0 0 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1 | put blocks BOOL 7,7
bytes 4 5 5 5 8 8 8 8 5 5 5 8 8 8 8 | put segments I32 2,7
some 0 112 | put sq F32 2,1,7,8 # for segments: as many queries as keys
printf '\001\000' | put odd_type F8_E4M3 2
save "$small"

mkdir "$T/kept" "$T/made"
printf 'what was here before\n' | tee "$T/kept/a.npz" >"$T/kept/a.safetensors"
kept=$(kept)

# ---------------------------------------------------------------------------------------------------- names and help

prints "relpos $(sed -n 's/.*RP_VERSION_STRING "\(.*\)"/\1/p' include/relpos/relpos.h)" --version
ok --help
for name in $commands; do
    has "^  $name  *[a-z]"
done
run
check 'no command: the usage on standard error' '2 0 Usage: ' "$code $(($(wc -c <"$T/out"))) $(grep -o 'Usage: ' "$T/err")"
for name in $commands; do
    ok "$name" --help
    check 'help starts with the name and has an example' "relpos $name -- Example:" \
        "$(head -n 1 "$T/out" | grep -o "^relpos $name --") $(sed -n 3p "$T/out")"
    has "^  relpos $name" "^Usage: relpos $name " '^      --help  '
    cp "$T/out" "$T/help.$name"
    refused 2 'no option is called --no-such-thing' "$name" --no-such-thing
done
refused 2 'no command is called "atend".*(relpos|attend)' atend
refused 2 'no command is called ""' ''
refused 2 'did you mean --causal' attend --cuasal
refused 2 'did you mean --softcap' attend --soft 3 # the start of two names
refused 2 'no option is called -z' attend -z
refused 2 '-o needs a value' attend "$small" -o
refused 2 '--scale needs a value' attend "$small" -o "$T/kept/b.npz" --scale
refused 2 'no input file' attend
refused 2 'no output file' attend "$small"
refused 2 'one argument too many: "third"' attend "$small" third -o "$T/kept/b.npz"
refused 2 'one argument too many' info now

# What a help offers is in the manual page, and the other way round; and so are the terms and masks.
for name in $commands; do
    command="man/relpos-$name.1.scd"
    sed '1,/^Options:/d' "$T/help.$name" | grep -oE -- '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort >"$T/one"
    grep -oE -- '^(\*-[a-z]\*, )?\*--[a-z-]+\*' "man/relpos-$name.1.scd" | grep -oE -- '--[a-z-]+' | sort >"$T/two"
    check 'options of the help and of the page' '' "$(diff "$T/one" "$T/two")"
done
"$program" info | sed -n '/^Position terms/,/^$/s/^  \([a-z0-9][a-z0-9]*\) .*/\1/p' >"$T/terms"
"$program" info | sed -n '/^Masks/,$s/^  \(--[a-z-]*\) .*/\1/p' >"$T/masks"
command='man/relpos.1.scd'
check 'terms and masks that info lists' '22 6' "$(($(wc -l <"$T/terms"))) $(($(wc -l <"$T/masks")))"
while read -r name; do
    check 'a term or mask has its line' "*$name" "$(grep -oE -m 1 -e "\*$name\b" man/relpos.1.scd | head -n 1)"
done <<END
$(cat "$T/terms" "$T/masks")
END

# ---------------------------------------------------------------------------------------------------- bucket

prints '-100 15
-50 13
-10 8
-5 5
-1 1
0 0
1 17
5 21
10 24
50 29
100 31' bucket -100 -50 -10 -5 -1 0 1 5 10 50 100
cp "$T/out" "$T/plain"
ok bucket -- -100 -50 -10 -5 -1 0 1 5 10 50 100
same 'with -- and without' "$T/plain" "$T/out"
prints '-100 30
-50 24
-10 10
-5 5
-1 1
0 0
1 0
100 0' bucket --causal -- -100 -50 -10 -5 -1 0 1 100
prints '-9 5
9 13' bucket -9 9 --buckets 16 --max-distance 64
prints '-9223372036854775808 15
9223372036854775807 31' bucket -9223372036854775808 9223372036854775807
prints '-3 3
4 0' bucket --buckets 4 --max-distance 4 --strategy=uniform -3 4 --causal # options among the numbers
ok bucket --buckets 8 --max-distance 16
has '^-16\.\.[-0-9]+ 3$' '^0\.\.0 0$' '^1\.\.1 5$' '\.\.16 7$'
ok bucket -7 --json
has '^\{"buckets": 32, "max_distance": 128, "bidirectional": true, "strategy": "log", "offsets": \[\{"offset": -7, "bucket": 7\}\]\}$'
for number in 0x10 1e3 ' 4' '4 ' 1.0 100000000000000000000 -9223372036854775809 nan '' - +; do
    refused 2 'offset: .*(is not a whole number|is too large)' bucket -- "$number"
    refused 2 '--buckets: .*(is not a whole number|is too large)' bucket 1 --buckets "$number"
done
refused 2 'is not a whole number' bucket 1 2 x 3
refused 2 'buckets' bucket 1 --buckets 1
refused 2 'buckets' bucket 1 --buckets 33
refused 2 'buckets' bucket 1 --buckets -4
refused 2 'max_distance' bucket 1 --max-distance 8
refused 2 'max_distance' bucket 1 --max-distance 0
refused 2 'no strategy is called "cubic"' bucket 1 --strategy cubic
refused 2 'no strategy is called' bucket 1 --strategy log,buckets=4

# ---------------------------------------------------------------------------------------------------- attend: numbers

# The worked example: the weights and the output of all five words, as the chapter prints them.
begin
f32 1 0 1 0 0 2 0 1 1 1 1 0 0 0 1 1 1 0 0 1 | put q F32 1,1,5,4
f32 0 1 0 1 1 0 1 0 1 1 0 0 0 0 1 1 1 0 0.5 0.5 | put k F32 1,1,5,4
f32 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0.5 0.5 0.5 0.5 | put v F32 1,1,5,4
save "$T/five.safetensors"
ok attend "$T/five.safetensors" -o "$T/five_out.safetensors" --bias log,lambda=0.3 --weights --lse --summary
check 'the weights of the chapter' '0.1473 0.3253 0.1747 0.1603 0.1924 0.4099 0.1126 0.2486 0.1335 0.0954 0.1321 0.2460 0.3029 0.1492 0.1697 0.1523 0.1660 0.1137 0.3805 0.1875 0.1508 0.1612 0.1758 0.1985 0.3138' \
    "$(numbers "$T/five_out.safetensors" weights | awk '{ printf "%.4f\n", $1 }' | paste -s -d ' ')"
check 'the output of the chapter' '0.2435 0.4215 0.2709 0.2565 0.4576 0.1603 0.2963 0.1812 0.2170 0.3309 0.3877 0.2341 0.2460 0.2597 0.2074 0.4743 0.3077 0.3181 0.3326 0.3554' \
    "$(numbers "$T/five_out.safetensors" out | awk '{ printf "%.4f\n", $1 }' | paste -s -d ' ')"
check 'lse of "The": log 3.0743 + 0.7921' 1.915 "$(numbers "$T/five_out.safetensors" lse | awk 'NR == 1 { printf "%.3f\n", $1 }')"
check 'five rows sum to one each' 5.0000 "$(numbers "$T/five_out.safetensors" key_mass | awk '{ s += $1 } END { printf "%.4f\n", s }')"
check 'nine offsets: the middle one is the mean of the diagonal' '9 0.2514' \
    "$(numbers "$T/five_out.safetensors" profile | awk 'NR == 5 { x = $1 } END { printf "%d %.4f\n", NR, x }')"
check 'entropy of "mat"' 1.5697 "$(numbers "$T/five_out.safetensors" entropy | awk 'NR == 5 { printf "%.4f\n", $1 }')"
ok attend "$T/five.safetensors" -o "$T/five_plain.safetensors" --weights
check 'without bias' '0.1095 0.2976 0.1805 0.1805 0.2318' \
    "$(numbers "$T/five_plain.safetensors" weights | awk 'NR <= 5 { printf "%.4f\n", $1 }' | paste -s -d ' ')"

# attend_to NAME OPTION...: the small file into $T/made/NAME.safetensors
attend_to()
{
    made=$T/made/$1.safetensors
    shift
    ok attend "$small" -o "$made" "$@"
}
# equal NAME NAME: outputs with the same bytes
equal()
{
    same "$1 equals $2" "$T/made/$1.safetensors" "$T/made/$2.safetensors"
}

# Every term and every mask by name, and all of them together.
attend_to plain
attend_to table --bias table,table=table,left=3,right=4
attend_to t5 --bias t5,table=t5
attend_to t5_options --bias t5,table=t5,buckets=32,max_distance=64,bidirectional=0
attend_to t5_shared --bias t5,table=t5_one
for strategy in log uniform linear quadratic; do
    attend_to "bucket_$strategy" --bias "bucket,table=t5,strategy=$strategy"
done
equal bucket_log t5
attend_to log --bias log
attend_to linear --bias linear,left=0.5,right=.25
attend_to alibi --bias alibi
attend_to alibi_slopes --bias alibi,slopes=slopes
attend_to dense --bias dense,bias=dense
attend_to rope --rope dim=6,base=500,layout=interleaved
attend_to rope_default --rope dim=8,base=10000,layout=half
attend_to rope_alone --rope --scale 0.3535533905932738
attend_to rope_scaled --rope dim=8,base=10000,layout=half --scale 0.3535533905932738
equal rope_alone rope_scaled
attend_to relkey --relkey table=keys,left=3,right=4
attend_to relkey_heads --relkey table=keys_h,left=3,right=4
attend_to relval --relval table=values,left=3,right=4
attend_to everything --bias table,table=table,left=3,right=4 --bias t5,table=t5 --bias log --bias linear --bias alibi --bias dense,bias=dense \
    --rope dim=8 --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 --causal --window 5,0 --key-mask key_U8 --mask row \
    --lengths lengths --scale 0.3 --softcap 20 --q-offset 2 --weights --lse --summary
for name in table t5 t5_options bucket_uniform bucket_linear bucket_quadratic log linear alibi alibi_slopes dense rope rope_default relkey \
    relkey_heads relval everything; do
    command="attend: $name"
    check 'it changes the output' differs "$(cmp -s "$T/made/plain.safetensors" "$T/made/$name.safetensors" || echo differs)"
done

# Laws: the same thing said in two ways.
attend_to zero --bias dense,bias=nothing
equal zero plain
attend_to causal --causal
attend_to window --window -1,0
equal causal window
attend_to narrow --window 5,0
attend_to narrow_causal --causal --window 5,-1
equal narrow narrow_causal
attend_to wide --window -1,-1
equal wide plain
attend_to wide --window 9223372036854775807,100
equal wide plain
attend_to uncapped --softcap 0
equal uncapped plain
attend_to full --mask none --weights --lse --summary
check 'every key masked' '0 0 -inf 0 0 0' "$(for name in out weights lse profile key_mass entropy; do
    numbers "$made" $name | sort -u
done | paste -s -d ' ')"
attend_to lengths_zero --lengths no_keys
check 'no valid keys' 0 "$(numbers "$made" out | sort -u)"
attend_to offset --causal --q-offset -3 --lse
check 'three queries before the first key, then one that sees a key alone' '-inf -inf -inf number' \
    "$(numbers "$made" lse | awk 'NR <= 4 { print /^-?[0-9.e-]+$/ ? "number" : $1 }' | paste -s -d ' ')"
check 'a query with one key gives its value' "$(numbers "$small" v | head -n 5)" "$(numbers "$made" out | sed -n 16,20p)"
attend_to scale --scale 0 --weights
check 'scale 0: every key the same' 0.1111 "$(numbers "$made" weights | awk '{ printf "%.4f\n", $1 }' | sort -u)"
attend_to scale --scale 0.353553390593273786
near 'the default scale is 1/sqrt(8)' 1e-6 "$made" out "$T/made/plain.safetensors" out
attend_to capped --softcap 1e6
near 'a far cap' 1e-4 "$made" out "$T/made/plain.safetensors" out
attend_to capped --softcap 0.5 --bias alibi
attend_to capped_after --softcap-after 0.5 --bias alibi
check 'a cap before and after the bias' differs "$(cmp -s "$T/made/capped.safetensors" "$T/made/capped_after.safetensors" || echo differs)"
attend_to key_U8 --key-mask key_U8
for type in I64 U64 I32 U32 I16 U16 I8 BOOL odd; do
    attend_to "key_$type" --key-mask "key_$type"
    equal "key_$type" key_U8
done
attend_to row --mask row
attend_to row_lengths --mask row --lengths lengths
attend_to row_lengths4 --mask row --lengths lengths4
equal row_lengths row_lengths4

begin # segments need as many keys as queries
some 0 112 | put q F32 2,1,7,8
some 3000 112 | put k F32 2,1,7,8
some 6000 112 | put v F32 2,1,7,8
bytes 4 5 5 5 8 8 8 8 5 5 5 8 8 8 8 | put segments I32 2,7
bytes 1 1 1 1 0 0 0 0 1 1 1 0 0 0 0 1 1 1 0 0 0 0 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1 | put blocks BOOL 7,7
save "$T/square.safetensors"
ok attend "$T/square.safetensors" -o "$T/made/segments.safetensors" --segments segments --bias log
ok attend "$T/square.safetensors" -o "$T/made/blocks.safetensors" --mask blocks --bias log
near 'two segments are two blocks of a mask' 1e-6 "$T/made/segments.safetensors" out "$T/made/blocks.safetensors" out

# The bias that `relpos bias` writes, given back as an array, is the term.
biases="log,lambda=0.7 linear,left=0.5,right=1 alibi alibi,slopes=slopes t5,table=t5 bucket,table=t5,strategy=quadratic table,table=table,left=3,right=4"
for term in $biases; do
    case $term in *=t5* | *=slopes* | *=table*) with="--input $small" ;; *) with='' ;; esac
    # shellcheck disable=SC2086
    ok bias "$term" $with --heads 4 --q 7 --k 9 --q-offset 1 -o "$T/bias.safetensors"
    begin
    some 0 448 | put q F32 2,4,7,8
    some 5000 288 | put k F32 2,2,9,8
    some 9000 180 | put v F32 2,2,9,5
    numbers "$T/bias.safetensors" bias >"$T/one"
    # shellcheck disable=SC2046
    f32 $(cat "$T/one") | put b F32 4,7,9
    save "$T/given.safetensors"
    ok attend "$T/given.safetensors" -o "$T/made/given.safetensors" --bias dense,bias=b --q-offset 1
    attend_to direct --bias "$term" --q-offset 1
    near "$term as an array" 1e-5 "$T/made/direct.safetensors" out "$T/made/given.safetensors" out
done

# Threads, runs and instruction sets.
attend_to once --bias t5,table=t5 --causal --weights --lse --summary --threads 1
attend_to again --bias t5,table=t5 --causal --weights --lse --summary --threads 1
equal once again
attend_to two --bias t5,table=t5 --causal --weights --lse --summary --threads 2
equal once two
attend_to reference --bias t5,table=t5 --causal --lse --summary --dtype f64
for isa in $("$program" info --json | grep -oE '"name": "[a-z0-9]+", "found": true' | sed 's/"name": "\(.*\)", .*/\1/') reference; do
    attend_to "$isa" --bias t5,table=t5 --causal --lse --summary --isa "$isa"
    for name in out lse profile key_mass entropy; do
        near "$isa" 2e-5 "$made" $name "$T/made/reference.safetensors" $name
    done
    command="RELPOS_ISA=$isa relpos attend"
    RELPOS_ISA=$isa "$program" attend "$small" -o "$T/made/by_name.safetensors" --bias t5,table=t5 --causal --lse --summary
    equal "$isa" by_name
done

# A real text: the network's own q, k and v.
ok attend "$text" -o "$T/a.npz" --bias alibi --lse
ok attend "$text" -o "$T/b.npz" --bias alibi --lse --threads 1
same 'equal inputs, equal files, on any number of threads' "$T/a.npz" "$T/b.npz"
ok attend "$text" -o "$T/c.npz" --bias t5,table=t5_table --rope base=10000 --summary --causal
ok attend "$text" -o "$T/a.safetensors" --weights
numbers examples/data/minilm_weights_heads01.safetensors weights >"$T/one"
numbers "$T/a.safetensors" weights | head -n "$(($(wc -l <"$T/one")))" >"$T/two"
check "the network's own weights of heads 0 and 1" 219122 "$(paste "$T/one" "$T/two" | awk '{ d = $1 - $2; n += d < 2e-5 && d > -2e-5 } END { print n + 0 }')"

# ---------------------------------------------------------------------------------------------------- attend: files

zip_begin
some 0 448 | zip_put q "'<f4'" 2,4,7,8
some 5000 288 | zip_put k "'<f4'" 2,2,9,8
some 9000 180 | zip_put v "'<f4'" 2,2,9,5
bytes 1 1 1 0 1 1 1 1 0 1 | zip_put row "'|b1'" 9,
zip_save "$T/small.npz"
ok attend "$T/small.npz" -o "$T/made/npz.safetensors" --mask row
same '.npz and .safetensors in' "$T/made/npz.safetensors" "$T/made/row.safetensors"
ok attend "$small" -o "$T/one.npz" --mask row
ok attend "$T/small.npz" -o "$T/two.npz" --mask row
same '.npz out of either' "$T/one.npz" "$T/two.npz"
run attend - -o - --mask row <"$small"
check 'through a pipe' '0 ' "$code $(cat "$T/err")"
same '.safetensors through a pipe' "$T/out" "$T/made/row.safetensors"
run attend - -o - --mask row <"$T/small.npz"
same '.npz through a pipe' "$T/out" "$T/one.npz"
command='cat small.npz | relpos attend - -o - | cat'
# shellcheck disable=SC2002
cat "$T/small.npz" | "$program" attend - -o - --mask row | cat >"$T/out"
same '.npz through true pipes' "$T/out" "$T/one.npz"
cp "$small" "$T/no_suffix"
ok attend "$T/no_suffix" -o "$T/made/no_suffix.safetensors" --mask row
equal no_suffix row
(cd "$T" && cp small.safetensors -- '-odd name;.safetensors')
ok attend -o "$T/made/odd.safetensors" --mask=row -- "$T/-odd name;.safetensors"
equal odd row
mkdir "$T/deep"
ln -s ../made/linked.safetensors "$T/deep/link.safetensors"
ok attend "$small" -o "$T/deep/link.safetensors" --mask row
check 'the target of a symbolic link is written, the link stays' '../made/linked.safetensors' "$(readlink "$T/deep/link.safetensors")"
equal linked row
ok attend "$small" -o "$T/made/linked.safetensors"
equal linked plain # an older output is replaced
check 'no temporary stays' '' "$(find "$T" -name '.relpos*')"

# A biased array as `relpos bias` writes it is an input again, in both formats.
ok bias alibi --q 6 --k 6 -o "$T/one.npz"
ok bias dense,bias=bias --input "$T/one.npz" -o "$T/one.safetensors"
ok bias dense,bias=bias --input "$T/one.safetensors" -o "$T/two.npz"
same 'from .npz to .safetensors and back' "$T/one.npz" "$T/two.npz"

# Types.
attend_to f64 --dtype f64
attend_to f32 --dtype f32
equal f32 plain
near 'f64 and f32' 1e-5 "$T/made/f64.safetensors" out "$T/made/f32.safetensors" out
attend_to f16 --dtype f16 --weights
attend_to bf16 --dtype bf16 --lse
command='relpos attend --dtype'
check 'two bytes a number' "$((560 + 1008))" "$(($(wc -c <"$T/made/f16.safetensors") - 8 - $(od -An -t u8 -N 8 "$T/made/f16.safetensors")))"
check 'the name of the type' '"dtype":"BF16"' "$(grep -aoE -m 1 '"dtype":"[A-Z0-9]*"' "$T/made/bf16.safetensors" | head -n 1)"
ok attend "$small" -o "$T/f16.npz" --dtype f16
refused 2 'bf16: \.npz has no such type' attend "$small" -o "$T/kept/a.npz" --dtype bf16
refused 2 'bf16: \.npz has no such type' attend "$T/small.npz" -o "$T/kept/b.npz" --dtype bf16
tail -c 560 "$T/made/f16.safetensors" >"$T/half" # numbers in f16, to be q, k and v
for type in F16 BF16; do
    begin
    head -c 128 "$T/half" | put q $type 1,2,4,8
    tail -c 128 "$T/half" | put k $type 1,2,4,8
    tail -c 256 "$T/half" | head -c 128 | put v $type 1,2,4,8
    save "$T/$type.safetensors"
    ok attend "$T/$type.safetensors" -o "$T/made/$type.safetensors"
    check "the type of q is the default" "\"dtype\":\"$type\"" "$(grep -aoE -m 1 '"dtype":"[A-Z0-9]*"' "$T/made/$type.safetensors" | head -n 1)"
    ok attend "$T/$type.safetensors" -o "$T/made/wide.safetensors" --dtype f32
done
refused 1 'bf16.*\.npz has no such type' attend "$T/BF16.safetensors" -o "$T/kept/a.npz"
ok attend "$T/F16.safetensors" -o "$T/half.npz"
begin
zeros 512 | put q F64 1,2,4,8
zeros 512 | put k F64 1,2,4,8
zeros 512 | put v F64 1,2,4,8
save "$T/double.safetensors"
ok attend "$T/double.safetensors" -o "$T/made/double.safetensors"
check 'the type of q is the default' 0 "$(numbers "$T/made/double.safetensors" out | sort -u)"

# Nothing to attend to, nobody who attends.
begin
: | put q F32 1,2,0,8
some 0 64 | put k F32 1,2,4,8
some 0 64 | put v F32 1,2,4,8
save "$T/no_queries.safetensors"
ok attend "$T/no_queries.safetensors" -o "$T/made/no_queries.safetensors" --lse --weights --summary
begin
some 0 64 | put q F32 1,2,4,8
: | put k F32 1,2,0,8
: | put v F32 1,2,0,8
save "$T/no_keys.safetensors"
ok attend "$T/no_keys.safetensors" -o "$T/made/no_keys.safetensors" --lse --weights --summary
check 'rows without a key' '0 -inf' "$(numbers "$T/made/no_keys.safetensors" out | sort -u) $(numbers "$T/made/no_keys.safetensors" lse | sort -u | paste -s -d ' ')"

# NaN where it is masked reaches nothing; where it is attended, its row.
begin
some 0 16 | put q F32 1,1,2,8
{ some 100 8; f32 nan nan nan nan nan nan nan nan; some 200 8; } | put k F32 1,1,3,8
{ some 300 8; f32 nan inf -inf nan inf nan nan nan; some 400 8; } | put v F32 1,1,3,8
bytes 1 1 0 1 | put open U8 1,3
save "$T/nan.safetensors"
ok attend "$T/nan.safetensors" -o "$T/made/nan.safetensors" --key-mask open
check 'NaN of a masked key' 0 "$(numbers "$T/made/nan.safetensors" out | grep -c nan)"
ok attend "$T/nan.safetensors" -o "$T/made/nan.safetensors" --window 0,0
check 'NaN of the key of row 1' 8 "$(numbers "$T/made/nan.safetensors" out | grep -c nan)"

# ---------------------------------------------------------------------------------------------------- attend: bad files

bad_file() # bad_file PATTERN FILE: refused as input, with an output there before
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
bad_file 'it is empty' "$T/fifo.npz" # no writer: it must not wait
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
cp "$T/small.npz" "$T/wrong.safetensors"
bad_file 'wrong\.npz: ' "$T/wrong.npz"
bad_file 'wrong\.safetensors: ' "$T/wrong.safetensors"

length=$(($(od -An -t u8 -N 8 "$small"))) size=$(($(wc -c <"$small")))
for cut in 1 7 8 9 20 $((length + 7)) $((length + 8)) $((length + 9)) $((size / 2)) $((size - 1)); do
    head -c $cut "$small" >"$T/cut.safetensors"
    bad_file 'cut\.safetensors: ' "$T/cut.safetensors"
done
size=$(($(wc -c <"$T/small.npz")))
for cut in 1 3 4 30 $((size / 3)) $((size / 2)) $((size - 100)) $((size - 23)) $((size - 22)) $((size - 21)) $((size - 1)); do
    head -c $cut "$T/small.npz" >"$T/cut.npz"
    bad_file 'cut\.npz: ' "$T/cut.npz"
    refused 1 'standard input: ' attend - -o "$T/kept/a.npz" <"$T/cut.npz"
done
{ cat "$small"; echo; } >"$T/long.safetensors"
bad_file 'long\.safetensors: ' "$T/long.safetensors"
{ head -c 60 "$T/small.npz"; printf 'x'; tail -c +62 "$T/small.npz"; } >"$T/flipped.npz"
bad_file 'flipped\.npz: ' "$T/flipped.npz"
{ head -c 1000 "$T/small.npz"; printf 'xxxx'; tail -c +1005 "$T/small.npz"; } >"$T/flipped.npz"
bad_file 'flipped\.npz: .*(CRC|checksum)' "$T/flipped.npz"

# Headers by hand. 256 bytes of data: 64 numbers.
some 0 64 >"$T/numbers"
header_is() # header_is PATTERN HEADER
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
header_is 'array "q": not in the file' '{"Q":{"dtype":"F32","shape":[1,1,8,8],"data_offsets":[0,256]}}'
header_is 'not in the file \(it has line\\x0afeed, \\x1b\[31mred\)' \
    '{"line\nfeed":{"dtype":"F32","shape":[1,1,8,4],"data_offsets":[0,128]},"\u001b[31mred":{"dtype":"F32","shape":[1,1,8,4],"data_offsets":[128,256]}}'
{ bytes 8 9223372036854775807; printf '{}'; } >"$T/hand.safetensors"
bad_file 'hand\.safetensors: ' "$T/hand.safetensors"
{ printf '\377\377\377\377\377\377\377\377'; printf '{}'; } >"$T/hand.safetensors"
bad_file 'hand\.safetensors: ' "$T/hand.safetensors"

# .npy headers by hand, in a good archive.
entry_is() # entry_is PATTERN DESCR SHAPE
{
    zip_begin
    some 0 64 | zip_put q "$2" "$3"
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
some 0 64 | zip_put q "'<f4'" 1,1,8,8
some 0 64 | zip_put q "'<f4'" 1,1,8,8
zip_save "$T/twice.npz"
bad_file 'twice\.npz: ' "$T/twice.npz"

# Shapes and types of q, k and v.
three() # three PATTERN TYPE SHAPE TYPE SHAPE TYPE SHAPE: of q, k and v, with data to fit
{
    pattern3=$1
    shift
    begin
    for letter in q k v; do
        case $1 in F64 | I64) each=8 ;; F32 | I32) each=4 ;; F16 | BF16) each=2 ;; *) each=1 ;; esac
        count=1
        for axis in $(echo "$2" | tr , ' '); do
            count=$((count * axis))
        done
        head -c $((count * each)) "$text" | put $letter "$1" "$2"
        shift 2
    done
    save "$T/three.safetensors"
    bad_file "$pattern3" "$T/three.safetensors"
}
three '^relpos: q: 3 axes' F32 1,4,8 F32 1,1,4,8 F32 1,1,4,8
three '^relpos: k: 2 axes' F32 1,1,4,8 F32 4,8 F32 1,1,4,8
three '^relpos: v: 1 axes|v: 1 axis' F32 1,1,4,8 F32 1,1,4,8 F32 32
three '"q": 5 axes|q: 5 axes' F32 1,1,1,4,8 F32 1,1,4,8 F32 1,1,4,8
three '\bk\b' F32 2,1,4,8 F32 1,1,4,8 F32 2,1,4,8
three '\bv\b' F32 2,1,4,8 F32 2,1,4,8 F32 1,1,4,8
three '\bk\b' F32 1,1,4,8 F32 1,1,4,7 F32 1,1,4,8
three '\bv\b' F32 1,1,4,8 F32 1,1,5,8 F32 1,1,4,8
three 'kv_heads' F32 1,3,4,8 F32 1,2,4,8 F32 1,2,4,8
three 'kv_heads' F32 1,2,4,8 F32 1,3,4,8 F32 1,3,4,8
three '\bv\b' F32 1,2,4,8 F32 1,2,4,8 F32 1,1,4,8
three 'q: an axis of length 0' F32 0,1,4,8 F32 0,1,4,8 F32 0,1,4,8
three 'q: an axis of length 0' F32 1,1,4,0 F32 1,1,4,0 F32 1,1,4,8
three 'v: an axis of length 0' F32 1,1,4,8 F32 1,1,4,8 F32 1,1,4,0
three '\bq\b.*(i32|int|type)' I32 1,1,4,8 F32 1,1,4,8 F32 1,1,4,8
three '\bk\b.*(u8|int|type)' F32 1,1,4,8 U8 1,1,4,8 F32 1,1,4,8
three '\bv\b.*(bool|int|type)' F32 1,1,4,8 F32 1,1,4,8 BOOL 1,1,4,8
begin
some 0 32 | put q F32 1,1,4,8
some 0 32 | put k F32 1,1,4,8
save "$T/two.safetensors"
bad_file 'array "v": not in the file \(it has q, k\)' "$T/two.safetensors"

# ---------------------------------------------------------------------------------------------------- attend: bad options

bad() # bad CODE PATTERN OPTION...: over the small file
{
    bad_code=$1 bad_pattern=$2
    shift 2
    refused "$bad_code" "$bad_pattern" attend "$small" -o "$T/kept/a.safetensors" "$@"
}
# The array of a term or mask: not there, of another shape, of another type.
for option in '--bias table,left=3,right=4,table=' '--bias t5,table=' '--bias bucket,table=' '--bias alibi,slopes=' '--bias dense,bias=' \
    '--relkey left=3,right=4,table=' '--relval left=3,right=4,table=' '--key-mask ' '--mask ' '--lengths ' '--segments '; do
    option_value=${option#* }
    bad 1 '"absent": not in the file \(it has q, k, v' "${option%% *}" "${option_value}absent"
    bad 1 '\bq\b|mask|lengths|segments|slopes|table|bias' "${option%% *}" "${option_value}q"
    bad 1 '"odd_type"' "${option%% *}" "${option_value}odd_type"
    case $option in
    --*mask* | --lengths* | --segments*) bad 1 'f32|type|as many queries' "${option%% *}" "${option_value}real" ;;
    *) bad 1 '(u8|type)' "${option%% *}" "${option_value}key_U8" ;;
    esac
done
bad 1 'table' --bias table,table=table,left=3,right=3
bad 1 'table' --bias t5,table=t5,buckets=16
bad 1 'table' --bias t5,table=dense
bad 1 'table' --relkey table=values,left=3,right=4
bad 1 'table' --relval table=keys,left=3,right=4
bad 1 'table' --relkey table=keys_h,left=3,right=5
bad 1 'segments' --segments segments # as many queries as keys are needed
bad 1 'key_mask' --key-mask blocks
bad 1 'mask' --mask blocks
bad 1 'lengths' --lengths key_I64
bad 1 'slopes' --bias alibi,slopes=table

# Terms: keys unknown, given twice, missing, without a value; names unknown.
bad 2 'no term is called "t6".*did you mean "t5"' --bias t6
bad 2 'no term is called ""' --bias ''
bad 2 'no term is called "T5"' --bias T5,table=t5
bad 2 'no term is called " t5"' --bias ' t5,table=t5'
bad 2 't5.*table' --bias t5 # no table is named
bad 2 'dense.*bias' --bias dense
bad 2 'table: left is missing' --bias table,table=table,right=4
bad 2 'relkey: right is missing' --relkey table=keys,left=3
bad 2 'relval.*table' --relval left=3,right=4
bad 2 't5 has no key "bucket".*did you mean "buckets"' --bias t5,table=t5,bucket=32
bad 2 'buckets is given twice' --bias t5,table=t5,buckets=32,buckets=32
bad 2 'table is given twice' --bias t5,table=t5,table=t5
bad 2 '"buckets" is not key=value' --bias t5,table=t5,buckets
bad 2 '"buckets=" is not key=value' --bias t5,table=t5,buckets=
bad 2 '"" is not key=value' --bias t5,table=t5,
bad 2 '"=3" is not key=value' --bias t5,table=t5,=3
bad 2 '"table=" is not key=value' --bias t5,table=
for number in 0x10 1e3 1.5 ' 4' '4 ' nan '' 100000000000000000000; do
    bad 2 'buckets' --bias "t5,table=t5,buckets=$number"
    bad 2 'left' --relkey "table=keys,left=$number,right=4"
done
for number in 0x1p3 nan inf -inf ' 1' '1 ' 1,5 '' 1e999 --1 1e; do
    bad 2 'lambda|5.* is not key=value' --bias "log,lambda=$number"
    bad 2 '--scale' --scale "$number"
    bad 2 '--softcap' --softcap "$number"
    bad 2 '--softcap-after' --softcap-after "$number"
done
bad 2 'buckets' --bias t5,table=t5,buckets=1
bad 2 'buckets' --bias t5,table=t5,buckets=31
bad 2 'buckets' --bias t5,table=t5,buckets=-32
bad 2 'max_distance' --bias t5,table=t5,max_distance=8
bad 2 'bidirectional is "2": 0 or 1' --bias t5,table=t5,bidirectional=2
bad 2 'strategy' --bias bucket,table=t5,strategy=cubic
bad 2 'left' --bias table,table=table,left=-3,right=4
bad 2 'base' --rope base=0
bad 2 'base' --rope base=-1
bad 2 'dim' --rope dim=7
bad 1 'dim' --rope dim=10 # wider than the q of this file
bad 2 'dim' --rope dim=-2
bad 2 'layout' --rope layout=quarter
bad 2 '--rope' --bias rope,dim=8
bad 2 '--relkey' --bias relkey,table=keys,left=3,right=4
bad 2 'rope' --rope dim=8 --rope dim=8
bad 2 'relkey' --relkey table=keys,left=3,right=4 --relkey table=keys,left=3,right=4
bad 2 'too many terms' --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log --bias log \
    --bias log --bias log --bias log --bias log --bias log --bias log --bias log
bad 2 'too many masks' --causal --causal --causal --causal --causal --causal --causal --causal --causal
bad 2 'longer than' --bias "t5,table=$(zeros 3000 | tr '\0' n)"

# Numbers and names of the other options.
for value in 5 '5,' ',5' 5,0,0 5,x x,0 5,-2 -2,5 ' 5,0' '5, 0' 5:0 0x5,0 5.0,0 99999999999999999999,0 ''; do
    bad 2 '--window' --window "$value"
done
for value in 0 -1 1000000 4097 x 2.0 1e1 '' ' 2' 99999999999999999999; do
    bad 2 '--threads' --threads "$value"
done
for value in 1.5 0x10 1e3 '' ' 4' 99999999999999999999 9223372036854775807; do
    bad 2 '--q-offset' --q-offset "$value"
done
bad 1 '"offsets": not in the file' --q-offset offsets
bad 1 '--q-offset: array "slopes" is f32 \(whole numbers' --q-offset slopes
bad 1 'q_offset' --q-offset key_I64
for value in f8 F32 float32 ''; do
    bad 2 '--dtype: .*is no type \(f32, f64, bf16 or f16\)' --dtype "$value"
done
bad 2 '--softcap.*below 0' --softcap -1
bad 2 '--softcap-after.*below 0' --softcap-after -1
bad 2 '--isa.*"avx1024".*relpos info' --isa avx1024
bad 2 '--isa' --isa ''
bad 2 '--mask.*name' --mask ''
bad 2 '--key-mask.*name' --key-mask ''

# Words of the user in messages: control characters are spelt out, and a message stays one line.
evil=$(printf 'a\033[31mb\nc\177')
for option in --bias --dtype --window --isa --threads --scale --softcap --q-offset --mask --key-mask --rope --relkey; do
    run attend "$small" -o "$T/kept/a.npz" "$option" "$evil"
    check 'one line without control characters' '1 0' "$(($(wc -l <"$T/err"))) $(tr -d '\n' <"$T/err" | grep -c '[[:cntrl:]]')"
done
for words in "$evil" "attend	x	$evil	-o	x.npz" "attend	x	-o	$evil" "attend	$evil	-o	x.npz" "attend	-o	x.npz	--$evil" "attend	x	-o	$T/no/$evil.npz" \
    "verify	fwd:f32:b1h1q1k1d1:$evil" "verify	--isa	$evil" "bench	$evil" "bench	fwd:f32:$evil" "bucket	$evil" "bias	$evil" "bias	log	-o	$evil" \
    "bias	t5,table=$evil" "bucket	--strategy	$evil" "explain	--bias	$evil" "explain	--input	$evil" "info	$evil" \
    "attend	$small	-o	x.npz	--bias	log,lambda=$evil" "attend	$small	-o	x.npz	--bias	log,$evil=1" "attend	$small	-o	x.npz	--bias	log,$evil" \
    "attend	$small	-o	x.npz	--bias	rope,layout=$evil" "attend	$small	-o	x.npz	--bias	bucket,strategy=$evil"; do
    IFS='	'
    # shellcheck disable=SC2086
    run $words
    unset IFS
    check 'a failure' failed "$([ $code -eq 1 ] || [ $code -eq 2 ] && echo failed || echo "exit code $code")"
    check 'one line without control characters' '1 0' "$(($(wc -l <"$T/err"))) $(tr -d '\n' <"$T/err" | grep -c '[[:cntrl:]]')"
done

# ---------------------------------------------------------------------------------------------------- attend: gradients and more terms

more=$T/more.safetensors # the small file's q, k and v with arrays for the other terms
begin
some 0 448 | put q F32 2,4,7,8
some 5000 288 | put k F32 2,2,9,8
some 9000 180 | put v F32 2,2,9,5
some 2000 280 | put dout F32 2,4,7,5
some 100 32 | put table F32 4,8
some 100 32 | put again F32 4,8 # the same numbers
f32 0.5 0.25 0.125 0.0625 | put slopes F32 4
f32 -inf -inf -inf -inf | put no_sink F32 4
some 2300 3 | put w1 F32 3,1
some 2310 3 | put b1 F32 3
some 2320 12 | put w2 F32 4,3
some 2340 4 | put b2 F32 4
some 2350 6 | put w2m F32 2,3
some 2360 2 | put b2m F32 2
some 2370 8 | put w3 F32 4,2
some 2400 28 | put rt F32 4,7
some 2500 168 | put br F32 2,4,7,3
some 2700 15 | put bp F32 3,5
some 2800 60 | put bp_h F32 4,3,5
some 2900 72 | put logf F32 2,4,9
some 3000 480 | put xr F32 4,15,8
zeros 480 | put x0 F32 15,8
some 3500 32 | put xu F32 4,8
some 3540 32 | put xv F32 4,8
some 3600 192 | put k_pos F32 4,6,8
some 3800 192 | put q_pos F32 4,6,8
some 500 252 | put dense F32 4,7,9
some 900 64 | put keys F32 8,8
some 1300 40 | put values F32 8,5
f32 0.25 0.5 2 3.75 4 5.5 6 | put q_real F32 7
f32 0 1 2 3 4 5 6 | put q_index F32 7
f32 0 1 2 nan 4 5 6 | put q_nan F32 7
bytes 8 0 1 2 3 4 5 6 | put q_whole I64 7
bytes 4 0 1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 8 | put k_whole I32 2,9
bytes 1 1 0 1 1 1 0 1 | put q_keep BOOL 7
bytes 8 2 0 | put first I64 2
bytes 4 2 2 | put both I32 2
bytes 1 0 0 | put start U8 2
save "$more"

# more_to NAME OPTION...: that file into $T/made/NAME.safetensors
more_to()
{
    made=$T/made/$1.safetensors
    shift
    ok attend "$more" -o "$made" "$@"
}
# differs NAME NAME
differs()
{
    command="attend: $1 and $2"
    check 'other numbers' differs "$(cmp -s "$T/made/$1.safetensors" "$T/made/$2.safetensors" || echo differs)"
}
more_to more
equal more plain
fire=fire,w1=w1,b1=b1,w2=w2,b2=b2,c=1.5,L=2
fire3=fire,w1=w1,b1=b1,w2=w2m,b2=b2m,w3=w3,b3=b2,c=1.5,L=2
n=0
for option in '--bias kerple,p=slopes,a=slopes' '--bias kerple,p=slopes,a=slopes,kind=power' '--bias sandwich,dim=8' "--bias $fire" "--bias $fire3" \
    '--bias real,table=rt,max_distance=3' '--bias real,table=rt,max_distance=3,sign=1,q_positions=q_real,k_positions=k_whole,q_position_mask=q_keep' \
    '--bias band,r=br,p=bp' '--bias band,r=br,p=bp_h' '--bias forget,logf=logf' '--xl r=xr' '--xl r=xr,u=xu,v=xv' '--deberta k_pos=k_pos' \
    '--deberta k_pos=k_pos,q_pos=q_pos,span=3' '--deberta q_pos=q_pos,buckets=4,max_position=5' '--sink slopes' '--dropout 0.5 --seed 3' \
    '--q-offset first --causal' '--rope q_positions=q_real,k_positions=k_whole' '--rope scaling=linear,factor=2' \
    '--rope scaling=yarn,factor=4,original_max_position_embeddings=8' '--bias alibi,q_positions=q_real'; do
    n=$((n + 1))
    # shellcheck disable=SC2086
    more_to "more_$n" $option --grad
    differs "more_$n" plain
    for name in out dq dk dv; do
        check "$option: $name has numbers" 0 "$(numbers "$made" $name | grep -c '[^-0-9.e+]')"
    done
    # shellcheck disable=SC2086
    more_to double $option --grad --dtype f64
    for name in out dq dk dv; do
        near "$option: f32 and f64" 2e-4 "$T/made/more_$n.safetensors" $name "$made" $name
    done
done
more_to grad --bias table,table=table,left=3,right=4 --bias dense,bias=dense --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 --grad
for shape in 'dq 2,4,7,8' 'dk 2,2,9,8' 'dv 2,2,9,5' 'dtable 4,8' 'ddense 4,7,9' 'dkeys 8,8' 'dvalues 8,5'; do
    check 'a gradient has the shape of its array' "${shape#* }" \
        "$(grep -aoE -m 1 "\"${shape% *}\":\{\"dtype\":\"F32\",\"shape\":\[[0-9,]*" "$made" | sed 's/.*\[//')"
done
more_to threads --bias table,table=table,left=3,right=4 --bias dense,bias=dense --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 --grad --threads 2
equal grad threads
more_to with_all --bias table,table=table,left=3,right=4 --bias dense,bias=dense --relkey table=keys,left=3,right=4 --relval table=values,left=3,right=4 \
    --grad --weights --lse --summary
for name in out dq dk dv dtable dkeys; do
    near 'beside --weights and --summary' 0 "$T/made/grad.safetensors" $name "$made" $name
done
# An array that is named twice gets the sum.
more_to two --bias table,table=table,left=3,right=4 --bias table,table=again,left=3,right=4 --grad
more_to twice --bias table,table=table,left=3,right=4 --bias table,table=table,left=3,right=4 --grad
numbers "$T/made/two.safetensors" dtable >"$T/one"
numbers "$T/made/two.safetensors" dagain >"$T/two"
numbers "$T/made/twice.safetensors" dtable | paste "$T/one" "$T/two" - >"$T/three"
check 'the sum of two gradients' '32 32' "$(awk '{ d = $1 + $2 - $3; n += d < 1e-6 && d > -1e-6 } END { print NR, n }' "$T/three")"
check 'and one array of it' 1 "$(grep -aoE '"dtable"' "$T/made/twice.safetensors" | grep -c .)"
more_to query --xl r=xr,u=xu,v=xu --grad # u and v
more_to queries --xl r=xr,u=xu,v=xv --grad
check 'one gradient for u and v' 1 "$(grep -aoE '"dxu"' "$T/made/query.safetensors" | grep -c .)"
for type in bf16 f16; do
    more_to "grad_$type" --bias alibi,slopes=slopes --grad --dtype $type
    check 'all of that type' 5 "$(grep -aoiE "\"dtype\":\"$type\"" "$made" | grep -c .)"
done
ok attend "$more" -o "$T/grad.npz" --bias alibi,slopes=slopes --grad --dtype f16

# The same thing said in two ways.
more_to no_sink --sink no_sink
near 'a sink of -infinity' 1e-6 "$made" out "$T/made/plain.safetensors" out
more_to no_xl --xl r=x0
near 'vectors of zeros' 1e-6 "$made" out "$T/made/plain.safetensors" out
more_to dropout --dropout 0.5 --seed 3
more_to dropout_again --dropout 0.5 --seed 3 --threads 2
equal dropout dropout_again
more_to dropout_other --dropout 0.5 --seed 4
differs dropout dropout_other
more_to dropout_none --dropout 0 --seed 4
equal dropout_none plain
more_to offset2 --causal --q-offset 2 --bias log
more_to offset2_array --causal --q-offset both --bias log
equal offset2 offset2_array
more_to offset0_array --causal --q-offset start
equal offset0_array causal
more_to positions --bias log,q_positions=q_whole,k_positions=k_whole
near 'the positions that are there anyway' 1e-6 "$made" out "$T/made/log.safetensors" out
more_to positions_real --bias log,q_positions=q_index,k_positions=k_whole
equal positions_real positions
more_to rope_positions --rope q_positions=q_index,k_positions=k_whole
more_to rope_default --rope dim=8
near 'the positions that are there anyway' 1e-6 "$made" out "$T/made/rope_positions.safetensors" out

# Grids: 2 rows of 3 tokens, and a class token.
for tokens in 6 7; do
    begin
    some 0 $((tokens * 16)) | put q F32 1,2,$tokens,8
    some 3000 $((tokens * 16)) | put k F32 1,2,$tokens,8
    some 6000 $((tokens * 16)) | put v F32 1,2,$tokens,8
    some 7000 $((tokens * 16)) | put dout F32 1,2,$tokens,8
    some 100 30 | put table F32 15,2
    some 200 36 | put table_class F32 18,2
    some 300 6 | put bh F32 2,3
    some 400 10 | put bw F32 2,5
    some 500 24 | put rh F32 3,8
    some 600 40 | put rw F32 5,8
    some 700 $tokens | put pos F32 $tokens
    save "$T/grid$tokens.safetensors"
done
for option in '--bias swin,table=table,grid=2x3' '--bias axial,bh=bh,bw=bw,grid=2x3' '--axialkey rh=rh,rw=rw,grid=2x3' '--rope positions=pos'; do
    # shellcheck disable=SC2086
    ok attend "$T/grid6.safetensors" -o "$T/made/grid.safetensors" $option --grad
done
ok attend "$T/grid7.safetensors" -o "$T/made/grid.safetensors" --bias swin,table=table_class,grid=2x3,extra=1 --grad
check 'the gradient of a table with a class token' 36 "$(numbers "$T/made/grid.safetensors" dtable_class | grep -c .)"

bad_grid() # bad_grid CODE PATTERN TOKENS OPTION...
{
    grid_code=$1 grid_pattern=$2 grid_tokens=$3
    shift 3
    refused "$grid_code" "$grid_pattern" attend "$T/grid$grid_tokens.safetensors" -o "$T/kept/a.safetensors" "$@"
}
bad_grid 1 'grid is 2x3: 6 tokens, but there are 7' 7 --bias swin,table=table,grid=2x3
bad_grid 1 'grid is 2x3: 7 tokens with the class token, but there are 6' 6 --bias swin,table=table_class,grid=2x3,extra=1
bad_grid 1 'table' 6 --bias swin,table=table_class,grid=2x3
bad_grid 1 'table' 7 --bias swin,table=table,grid=2x3,extra=1
bad_grid 1 'bh' 6 --bias axial,bh=bw,bw=bh,grid=2x3
bad_grid 1 'rh' 6 --axialkey rh=rw,rw=rh,grid=2x3
bad_grid 1 'grid is 3x3' 6 --bias axial,bh=bw,bw=bw,grid=3x3
bad_grid 2 'grid' 6 --bias axial,bh=bh,bw=bw,grid=2x3 --bias swin,table=table,grid=3x3
bad_grid 2 'q_offset' 6 --bias axial,bh=bh,bw=bw,grid=2x3 --q-offset 1
bad_grid 2 'extra is 2' 6 --bias swin,table=table,grid=2x3,extra=2
bad_grid 2 'axial has no key "extra"' 6 --bias axial,bh=bh,bw=bw,grid=2x3,extra=1
for grid in 6 2x 2x3x1 x3 2,3 0x3 -2x3 2.0x3 99999999999x99999999999 ''; do
    bad_grid 2 'grid|key=value' 6 --bias "swin,table=table,grid=$grid"
done

bad_more() # bad_more CODE PATTERN OPTION...: over that file
{
    more_code=$1 more_pattern=$2
    shift 2
    refused "$more_code" "$more_pattern" attend "$more" -o "$T/kept/a.safetensors" "$@"
}
refused 1 '--grad: array "dout" is not in the file' attend "$small" -o "$T/kept/a.safetensors" --grad
begin
some 0 64 | put q F32 1,1,8,8
some 0 64 | put k F32 1,1,8,8
some 0 64 | put v F32 1,1,8,8
some 0 56 | put dout F32 1,1,7,8
save "$T/bad_dout.safetensors"
bad_file_grad=$T/bad_dout.safetensors
refused 1 'dout: shape is \(1, 1, 7, 8\): \(1, 1, 8, 8\)' attend "$bad_file_grad" -o "$T/kept/a.safetensors" --grad
refused 2 'bf16: \.npz has no such type' attend "$more" -o "$T/kept/a.npz" --grad --dtype bf16
for value in 1 1.5 -0.1 x nan inf ''; do
    bad_more 2 '--dropout' --dropout "$value"
done
for value in -1 x 1.5 '' 99999999999999999999; do
    bad_more 2 '--seed' --dropout 0.1 --seed "$value"
done
bad_more 1 'sink.*\(3\)' --sink b1
bad_more 1 '"absent": not in the file' --sink absent
bad_more 2 '--sink.*name' --sink ''
bad_more 2 '--sink.*name' --sink a,b
bad_more 2 'sink' --sink slopes --sink slopes
bad_more 2 '--sink' --bias sink,sink=slopes
bad_more 2 '--xl' --bias xl,r=xr
bad_more 2 'kerple has no key "b"' --bias kerple,p=slopes,b=slopes
bad_more 2 'kerple.* a names no array' --bias kerple,p=slopes
bad_more 2 'kind is "cubic": one of log, power' --bias kerple,p=slopes,a=slopes,kind=cubic
bad_more 1 'kerple.*shape is' --bias kerple,p=slopes,a=b1
bad_more 2 'dim is missing' --bias sandwich
bad_more 2 'dim is 3' --bias sandwich,dim=3
bad_more 2 'c is missing' --bias fire,w1=w1,b1=b1,w2=w2,b2=b2,L=2
bad_more 2 'b2 names no array' --bias fire,w1=w1,b1=b1,w2=w2,c=1,L=2
bad_more 1 'fire: the shape of its array w1' --bias fire,w1=b1,b1=b1,w2=w2,b2=b2,c=1,L=2
bad_more 1 'w1 \(of fire\): shape is \(4, 3\): \(4, 1\)' --bias fire,w1=w2,b1=b2,w2=w2,b2=b2,c=1,L=2
bad_more 1 'w2 \(of fire\): shape is \(2, 3\): \(4, 3\)' --bias fire,w1=w1,b1=b1,w2=w2m,b2=b2,c=1,L=2
bad_more 1 'b3 \(of fire\) is absent|b3.*absent' --bias fire,w1=w1,b1=b1,w2=w2m,b2=b2m,w3=w3,c=1,L=2
bad_more 2 'max_distance is missing' --bias real,table=rt
bad_more 2 'sign is "2": 1 or -1' --bias real,table=rt,max_distance=3,sign=2
bad_more 1 'table.*shape' --bias real,table=rt,max_distance=4
bad_more 1 'mask is bool or of an integer type' --bias real,table=rt,max_distance=3,q_position_mask=q_real
bad_more 1 'band: the shape of its array p' --bias band,r=br,p=slopes
bad_more 1 'r \(of band\): shape' --bias band,r=q,p=bp
bad_more 1 'logf \(of forget\): shape' --bias forget,logf=slopes
bad_more 1 'r \(of xl\): shape' --xl r=k
bad_more 2 'r names no array' --xl u=xu
bad_more 1 'u \(of xl\): shape' --xl r=xr,u=slopes
bad_more 1 'k_pos and .*q_pos .* are absent' --deberta span=3
bad_more 1 'k_pos \(of deberta\): shape' --deberta k_pos=k_pos,span=4
bad_more 2 'relkey|xl' --relkey table=keys,left=3,right=4 --xl r=xr
bad_more 2 'deberta|xl' --deberta k_pos=k_pos --xl r=xr
bad_more 1 'q_positions.*element 3 is nan' --bias log,q_positions=q_nan
bad_more 1 'q_positions.*shape' --bias log,q_positions=k_whole
bad_more 1 '"absent": not in the file' --bias alibi,k_positions=absent
bad_more 1 'positions.*7 queries and 9 keys|positions.*shape' --rope positions=q_real
bad_more 2 'scaling is "ntk": one of' --rope scaling=ntk
bad_more 2 'factor' --rope scaling=linear,factor=0.5
bad_more 1 'short_factor|long_factor' --rope scaling=longrope,factor=2,original_max_position_embeddings=4
bad_more 1 'q_offset|shape' --q-offset q_whole
bad_more 1 '--q-offset: array "slopes" is f32' --q-offset slopes

# ---------------------------------------------------------------------------------------------------- attend: bad outputs

refused 2 'the suffix tells no format' attend "$small" -o "$T/kept/a.txt"
refused 2 'the suffix tells no format' attend "$small" -o "$T/kept/npz"
refused 2 'the suffix tells no format' attend "$small" -o ''
mkdir "$T/dir.npz"
refused 1 'it is a directory' attend "$small" -o "$T/dir.npz"
refused 1 'no file can be made in its directory' attend "$small" -o "$T/no_such/a.npz"
refused 1 'no file can be made in its directory|Not a directory' attend "$small" -o "$small/a.npz"
ln -s full.npz "$T/round.npz" && ln -s round.npz "$T/full.npz"
refused 1 'round\.npz' attend "$small" -o "$T/round.npz"
rm "$T/full.npz" "$T/round.npz"
ln -s /dev/full "$T/full.npz"
refused 1 'No space left' attend "$small" -o "$T/full.npz"
check 'the device is still there' 'character special file' "$(stat -c %F /dev/full)"
if [ "$(id -u)" != 0 ]; then # the superuser may write anywhere
    mkdir "$T/sealed"
    cp "$T/kept/a.npz" "$T/sealed/a.npz"
    chmod 555 "$T/sealed"
    refused 1 'no file can be made in its directory' attend "$small" -o "$T/sealed/a.npz"
    refused 1 'cannot be written' bias log -o "$T/sealed/a.png"
    chmod 755 "$T/sealed"
    chmod 444 "$T/sealed/a.npz"
    refused 1 'cannot be written: Permission' attend "$small" -o "$T/sealed/a.npz"
    chmod 000 "$T/sealed/a.npz"
    refused 1 'Permission' attend "$T/sealed/a.npz" -o "$T/kept/a.npz"
fi
(
    # A limit on the size of files, of 512 bytes, stands for a full disc.
    ulimit -f 1
    "$program" attend "$small" -o "$T/kept/a.npz" 2>"$T/err"
    echo $? >"$T/code"
)
command='ulimit -f 1; relpos attend'
check 'a file that may not grow' '1 1' "$(cat "$T/code") $(grep -c 'File too large' "$T/err")"
check 'existing files' "$kept" "$(kept)"

# Killed at any moment, or beaten to it by another: the file is the old one or the new one, and whole.
ok attend "$text" -o "$T/made/new.safetensors" --bias alibi
both="$(cksum <"$T/kept/a.safetensors")|$(cksum <"$T/made/new.safetensors")"
cp "$T/kept/a.safetensors" "$T/made/killed.safetensors"
command='timeout -s KILL ... relpos attend'
for delay in 0.002 0.004 0.006 0.008 0.01 0.012 0.014 0.016 0.018 0.02 0.025 0.03 0.04; do
    timeout -s KILL $delay "$program" attend "$text" -o "$T/made/killed.safetensors" --bias alibi
    now=$(cksum <"$T/made/killed.safetensors")
    case "|$both|" in *"|$now|"*) now=$both ;; esac
    check 'the old output or the new one' "$both" "$now"
done 2>/dev/null
rm -f "$T/made/".relpos*
command='three of relpos attend at once'
for name in "$text" "$text" "$text"; do
    "$program" attend "$name" -o "$T/made/race.safetensors" --bias alibi &
done
wait
equal race new

# Little memory: a failure in one line, or success.
for limit in 8000 20000 40000 80000 160000 320000; do
    command="ulimit -v $limit; relpos attend --weights"
    (
        # shellcheck disable=SC3045
        ulimit -v $limit
        "$program" info >"$T/out" 2>&1 || exit 1
        "$program" attend "$text" -o "$T/kept/a.npz" --weights --threads 8 2>"$T/err"
        echo $? >"$T/code"
    ) >/dev/null 2>&1 || continue # not enough to start at all, or a sanitizer, which takes much more
    check 'exit code, lines on standard error' yes "$(case "$(cat "$T/code") $(($(wc -l <"$T/err")))" in
        '0 0') echo yes ;;
        '1 1') echo yes && [ "$(kept)" = "$kept" ] || echo 'and the older output is gone' ;;
        *) cat "$T/code" "$T/err" ;;
        esac)"
    printf 'what was here before\n' >"$T/kept/a.npz"
done

# The input is never the output, by whatever name.
cp "$small" "$T/kept/in.safetensors"
ln -s in.safetensors "$T/kept/by_link.safetensors"
ln "$T/kept/in.safetensors" "$T/kept/by_name.safetensors"
kept=$(kept)
refused 2 'it is the input file' attend "$T/kept/in.safetensors" -o "$T/kept/in.safetensors"
refused 2 'it is the input file' attend "$T/kept/in.safetensors" -o "$T/kept/../kept/./in.safetensors"
refused 2 'it is the input file' attend "$T/kept/in.safetensors" -o "$T/kept/by_link.safetensors"
refused 2 'it is the input file' attend "$T/kept/by_link.safetensors" -o "$T/kept/in.safetensors"
refused 2 'it is the input file' attend "$T/kept/in.safetensors" -o "$T/kept/by_name.safetensors"
rm "$T/kept/"*.safetensors
printf 'what was here before\n' >"$T/kept/a.safetensors"
kept=$(kept)

# ---------------------------------------------------------------------------------------------------- streams

command='relpos info >/dev/full'
"$program" info >/dev/full 2>"$T/err"
check 'a full standard output' '1 1' "$? $(grep -c '^relpos: standard output: No space left' "$T/err")"
command='relpos attend -o - >/dev/full'
"$program" attend "$small" -o - >/dev/full 2>"$T/err"
check 'a full standard output' '1 1' "$? $(grep -c '^relpos: standard output: .*No space left' "$T/err")"
for words in '--version' '--help' 'info' 'info --json' 'explain' 'bucket 1 2' 'bias log' 'attend --help'; do
    command="relpos $words >&-"
    # shellcheck disable=SC2086
    "$program" $words >&- 2>"$T/err"
    check 'a closed standard output is a failure' '1 1' "$? $(grep -c '^relpos: standard output: ' "$T/err")"
done
command='relpos attend -o - >&-'
"$program" attend "$small" -o - >&- 2>"$T/err"
check 'a closed standard output is a failure' '1 1' "$? $(grep -c '^relpos: standard output: ' "$T/err")"
command='relpos attend - <&-'
"$program" attend - -o "$T/made/closed.safetensors" <&- 2>"$T/err"
check 'a closed standard input' '1 1' "$? $(grep -c '^relpos: standard input: ' "$T/err")"
command='relpos attend with everything closed'
"$program" attend "$small" -o "$T/made/closed.safetensors" <&- >&- 2>&-
check 'a file is written all the same' 0 "$?"
equal closed plain
"$program" attend "$T/no_such.npz" -o "$T/made/closed.safetensors" <&- >&- 2>&-
check 'a failure nobody hears' 1 "$?"
equal closed plain
for words in 'bias alibi --q 200 --k 200 -o -' 'bias log --q 100 --k 100 --json' "attend $text -o -"; do
    command="relpos $words | head -c 1"
    # shellcheck disable=SC2086
    { "$program" $words 2>"$T/err"; echo $? >"$T/code"; } | head -c 1 >/dev/null
    check 'a broken pipe is a failure, not a signal' 1 "$(cat "$T/code")"
    check 'and says one line at most' '' "$(tail -n +2 "$T/err")"
done
command='relpos ... 2>/dev/full'
"$program" attend "$T/no_such.npz" -o "$T/made/closed.safetensors" 2>/dev/full
check 'a full standard error' 1 "$?"

# Colours are for terminals.
for setting in TERM=xterm-256color TERM=dumb NO_COLOR=1; do
    command="$setting relpos explain"
    env "$setting" "$program" explain >"$T/one"
    env "$setting" "$program" bias alibi >>"$T/one"
    check 'no colours outside a terminal' 0 "$(grep -c "$(printf '\033')" "$T/one")"
done
if script -qec true /dev/null >/dev/null 2>&1; then # a terminal to write to
    for words in explain 'bias alibi --q 8 --k 8'; do
        for setting in TERM=xterm TERM=dumb 'TERM=xterm NO_COLOR=1' 'TERM=xterm NO_COLOR='; do
            case $setting in TERM=xterm | *NO_COLOR=) expected=coloured ;; *) expected=plain ;; esac
            command="$setting relpos $words"
            # shellcheck disable=SC2086
            env $setting script -qec "'$program' $words" "$T/typed" >/dev/null
            check 'colours on a terminal' $expected "$(grep -q "$(printf '\033')\\[" "$T/typed" && echo coloured || echo plain)"
        done
    done
fi

# Numbers are read and printed the same in every country.
for locale in $(locale -a 2>/dev/null | grep -iE '^(de_DE|fr_FR)\.?utf-?8$'); do
    command="LC_ALL=$locale"
    LC_ALL=$locale "$program" attend "$small" -o "$T/made/locale.safetensors" --scale 0.25 --bias log,lambda=0.3
    attend_to country --scale 0.25 --bias log,lambda=0.3
    equal locale country
    LC_ALL=$locale "$program" explain >"$T/one"
    ok explain
    same 'explain' "$T/one" "$T/out"
done

# ---------------------------------------------------------------------------------------------------- verify, bench, info

ok verify fwd:f32:b1h2q33k40d16:t5+log:causal
has '^[1-9][0-9]* problems? checked, 0 failed'
ok verify fwd:f32:b1h1q5k5d4 fwd:f32:b1h4g2q7k9d8v5:alibi:window=3,0+key_mask --verbose --isa generic --seed 3
has '^ok .*generic .*b1h1q5k5d4' '^ok .*generic .*b1h4g2q7k9d8v5:alibi' '^2 problems checked, 0 failed'
ok verify fwd:f32:b1h1q5k5d4 --json --isa generic
has '^\{"problem": "fwd:f32:b1h1q5k5d4", "isa": "generic", "seed": 7, "passed": true, "found": '
for problem in '' fwd fwd:f32 fwd:f32:b1h1q:t5 fwd:f8:b1h1q1k1d1 sideways:f32:b1h1q1k1d1 fwd:f32:x1 fwd:f32:b1h1q1k1d1:t6 fwd:f32:b1h1q1k1d1:t5:caus \
    fwd:f32:b1h1q1k1d1:t5:window=5 fwd:f32:b1h1q1k1d1:t5:causal:more fwd:f32:b1h1q1k1d1:t5,buckets=x fwd:f32:b1h1q1k1d1:t5+:causal \
    fwd:f32:b1h1q1k1d1::softcap fwd:f32:b1h1q1k1d1::softcap=x fwd:f32:b0x10h1q1k1d1 fwd:f32:b99999999999999999999h1q1k1d1; do
    refused 2 'problem' verify "$problem"
    refused 2 'problem' bench "$problem"
done
for problem in bwd:f32:b1h2q33k40d16:t5+relkey,left=3,right=3:causal fwdbwd:f64:b1h2q9k40d16:alibi+sink fwd:bf16:b1h2q9k40d16:xl \
    fwdbwd:f16:b1h2q9k40d16:rope fwd:f32:b2h2q9k12d8:kerple+fire,c=1,L=4+band:positions fwd:f32:b2h2q6k6d8:swin,grid=2x3:dropout=0.5+seed=3 \
    fwd:f32:b2h2q9k12d8:alibi,slopes=given+real,max_distance=3:q_offsets+causal fwd:f32:b1h2q9k9d8:deberta,span=4+forget; do
    ok verify "$problem"
    has '^[1-9] problems? checked, 0 failed'
done
for problem in fwd:f32:b1h1q4k4d4::dropout=1 fwd:f32:b1h1q4k5d4:swin,grid=2x2 fwd:f32:b1h1q4k4d4:relkey,left=1,right=1+xl \
    fwd:f32:b1h1q4k4d4:sink+sink; do
    refused 1 'problem' verify "$problem"
done
for setting in dropout=x dropout seed=-1 seed=x q_offsets=1 positions=p; do
    refused 2 'problem' bench "fwd:f32:b1h1q4k4d4::$setting"
done
for sizes in b1h0q1k1d1 b1h3g2q1k1d1 b1h1q1k1d0 b-1h1q1k1d1 b1h1q-5k1d1 b4000000000h4000000000q4000000000k1d1 b1h1q1000000000k1000000000d1000; do
    run verify "fwd:f32:$sizes"
    check 'sizes that cannot be' 'failed 1 0' "$([ $code = 1 ] || [ $code = 2 ] && echo failed) $(grep -vc '^==.*WARNING: AddressSanitizer' "$T/err") $(($(wc -c <"$T/out")))"
done
refused 2 'avx1024' verify fwd:f32:b1h1q1k1d1 --isa avx1024
refused 2 '--seed' verify fwd:f32:b1h1q1k1d1 --seed x

ok bench fwd:f32:b1h1q64k64d32:t5:causal fwd:f32:b1h1q64k64d32 --json --seconds 0.1 --threads 1
check 'one object a problem' '2 2' "$(($(wc -l <"$T/out"))) $(grep -c '^{.*}$' "$T/out")"
for key in problem isa threads runs ms ms_min ms_max gflops peak_gflops share_of_peak bytes_per_s bytes_peak; do
    check "the key $key, on both lines" 2 "$(grep -cE "[{ ]\"$key\": (\"[^\"]+\"|[0-9.e+-]+)[,}]" "$T/out")"
done
ok bench fwd:f64:b1h1q64k64d32 bwd:f32:b1h1q64k64d32:t5 fwdbwd:bf16:b1h1q64k64d32 --json --seconds 0.1
check 'one object a problem' 3 "$(grep -c '^{.*}$' "$T/out")"
ok bench fwd:f32:b1h1q64k64d32 --seconds 0.1
has '^fwd:f32:b1h1q64k64d32 .* ms .*runs.*GFLOP/s.*% of peak'
refused 2 'no problem' bench
refused 2 'avx1024' bench fwd:f32:b1h1q1k1d1 --isa avx1024
for value in 0 -1 x 5000; do
    refused 2 '--threads' bench fwd:f32:b1h1q1k1d1 --threads "$value"
done
for value in 0 -1 x nan ''; do
    refused 2 '--seconds' bench fwd:f32:b1h1q1k1d1 --seconds "$value"
done

ok info
has '^relpos [0-9]' '^instruction sets .*generic yes' '^chosen ' '^threads ' '^build ' '^  t5 ' '^  --causal '
ok info --json
has '^\{"version": "[0-9.]+", "isa": "[a-z0-9_]+", "isas": \[\{"name": "generic", "found": true\}.*"threads": [0-9]+, "build": \{' \
    '"terms": \[\{"name": "table", "syntax": "table,.*", "source": ".*"\}' '"masks": \[\{"name": "causal", "option": "--causal", "meaning": .*\}\]\}$'
ok info --measure
has '^multiplies  *[0-9.]+ GFLOP/s, generic$' '^reads  *[0-9.]+ GB/s$'
ok info --measure --json
has '^\{"version": .*"name": "generic", "found": true, "peak_gflops": [1-9].*"bytes_per_s": [1-9]'
for setting in RELPOS_THREADS=x RELPOS_THREADS=0 RELPOS_THREADS=-1 RELPOS_THREADS=1e9 RELPOS_ISA=avx1024; do
    export "${setting?}"
    refused 2 "${setting%%=*}" info
    refused 2 "${setting%%=*}" attend "$small" -o "$T/kept/a.npz"
    unset "${setting%%=*}"
done
RELPOS_THREADS='' RELPOS_ISA='' "$program" info >"$T/one"
ok info
same 'an empty setting is none' "$T/one" "$T/out"
command='RELPOS_THREADS=3 RELPOS_ISA=generic relpos info'
RELPOS_THREADS=3 RELPOS_ISA=generic "$program" info >"$T/out"
has '^threads  *3$' '^chosen  *generic$'

# ---------------------------------------------------------------------------------------------------- explore

# A program of its own, with and without a page beside it; "browsers" that work and fail.
built=$program
mkdir -p "$T/tree/bin" "$T/tree/share/doc/relpos" "$T/browser"
cp "$program" "$T/tree/bin/relpos"
program=$T/tree/bin/relpos
unset DISPLAY WAYLAND_DISPLAY
refused 1 'explore: relpos-explorer.html is not there' explore
echo page >"$T/tree/share/doc/relpos/relpos-explorer.html"
page=$(realpath "$T/tree/share/doc/relpos/relpos-explorer.html")
prints "$page" explore
prints "$page" explore --path
refused 2 'one argument too many' explore now
printf '#!/bin/sh\n[ "$1" = "%s" ] && echo >"%s/opened"\n' "$page" "$T" >"$T/browser/xdg-open"
chmod +x "$T/browser/xdg-open"
PATH=$T/browser:$PATH
prints "$page" explore # no screen
check 'nothing is opened without a screen' '' "$(ls "$T/opened" 2>/dev/null)"
DISPLAY=:9
export DISPLAY
prints '' explore
check 'the page is opened' "$T/opened" "$(ls "$T/opened")"
printf '#!/bin/sh\nexit 3\n' >"$T/browser/xdg-open"
prints "$page" explore # no browser
unset DISPLAY
PATH=${PATH#"$T/browser:"}
program=$built

# ---------------------------------------------------------------------------------------------------- bias

prints 'head,query,key,bias
0,0,0,0
0,0,1,-0.5
0,1,0,-0.25
0,1,1,0' bias linear,left=0.25,right=0.5 --q 2 --k 2 -o -
cp "$T/out" "$T/plain"
ok bias linear,left=0.25,right=0.5 --q 2 --k 2 -o "$T/made/a.csv"
same '.csv in a file' "$T/plain" "$T/made/a.csv"
prints '{"bias_of": "linear", "heads": 1, "q": 2, "k": 3, "q_offset": 1, "bias": [[[-1, 0, -1], [-2, -1, 0]]]}' \
    bias linear --q 2 --k 3 --q-offset 1 --json
ok bias alibi --q 1 --k 2 -o -
check 'the eight slopes of ALiBi' '-0.5 -0.25 -0.125 -0.0625 -0.03125 -0.015625 -0.0078125 -0.00390625' \
    "$(sed -n 's/.*,0,1,//p' "$T/out" | paste -s -d ' ')"
ok bias alibi --heads 2 --q 1 --k 2 -o -
check 'two slopes' '-0.0625 -0.00390625' "$(sed -n 's/.*,0,1,//p' "$T/out" | paste -s -d ' ')"
ok bias log log linear,left=1,right=2 --q 1 --k 2 -o -
check 'terms add up' 0.3,-2.416 "$(awk -F , 'NR == 3 { printf "0.3,%.3f\n", $4 }' "$T/out")"
ok bias log --q 5 --k 5
has '^bias of log' '^1  -0\.2079   0\.0000  -0\.2079  -0\.3296  -0\.4159' 'query downward, key to the right'
ok bias log
has '^bias of log' 'query downward, key to the right'
run bias t5 --q 4 --k 4
check 'buckets where there is no table' '0 1' "$code $(grep -c '^relpos: t5: no table given' "$T/err")"
has '^bucket of t5' '^1   *1\.0000   *0\.0000  *17\.0000  *18\.0000'
ok bias t5,table=t5 --input "$small" --q 3 --k 3 --head 2 --json
has '"heads": 4'
ok bias t5,table=t5_table --input "$text" --q 40 --k 40 --head 11
for term in kerple kerple,kind=power sandwich,dim=8 fire,c=1,L=4 fire,c=1,L=4,width2=3 real,max_distance=4 band band,width=2,extent=3 forget \
    swin,grid=3x4 swin,grid=3x4,extra=1 axial,grid=3x4; do
    run bias "$term" --heads 2 --json
    check "$term draws its bias without a file" '0 1' "$code $(grep -c '"heads": 2, "q": \(64\|12\|13\), ' "$T/out")"
done
run bias swin,grid=2x2 -o -
check 'the window index of Swin' '4 3 1 0 5 4 2 1 7 6 4 3 8 7 5 4' "$(sed -n 's/^0,.*,//p' "$T/out" | paste -s -d ' ')"
ok bias real,table=rt,max_distance=3,q_positions=q_real,k_positions=k_whole --input "$more" --q-offset first --json
has '"heads": 4, "q": 7, "k": 9, "q_offset": 2,'
ok bias fire,w1=w1,b1=b1,w2=w2,b2=b2,c=1,L=2 --input "$more" --json
has '"heads": 4'
for term in log,lambda=0.3 alibi 'bucket,strategy=uniform'; do
    for suffix in png svg; do
        run bias "$term" --q 20 --k 30 -o "$T/made/a.$suffix"
        check "a picture of $term as $suffix" 0 "$code"
        run bias "$term" --q 20 --k 30 -o "$T/made/b.$suffix"
        same 'the same picture again' "$T/made/a.$suffix" "$T/made/b.$suffix"
    done
done
command='relpos bias -o a.png, a.svg'
check 'a .png has its first bytes' ' 89 50 4e 47 0d 0a 1a 0a' "$(head -c 8 "$T/made/a.png" | od -An -t x1)"
check 'a .svg begins and ends' '<?xml version="1.0" encoding="UTF-8"?> </svg>' "$(head -n 1 "$T/made/a.svg") $(tail -n 1 "$T/made/a.svg")"
ok bias "dense,bias=dense" --input "$small" -o "$T/made/a.svg" --head 3

refused 2 'no term' bias
refused 2 'rope: no bias of its own' bias rope
refused 2 'relkey: no bias of its own' bias relkey,table=keys,left=3,right=4
refused 2 'relval: no bias of its own' bias relval,table=values,left=3,right=4
refused 2 'no term is called "t6"' bias t6
refused 2 'xl: no bias of its own' bias xl
refused 2 'sink: no bias of its own' bias sink
refused 2 'grid is missing' bias swin
refused 2 'grid' bias swin,grid=2x3 --q 5
refused 2 'comes from a file' bias log --q-offset offsets
refused 2 'dense: its array bias is needed' bias dense
refused 2 'comes from a file' bias dense,bias=x
refused 1 '"x": not in the file' bias dense,bias=x --input "$small"
refused 1 'no_such' bias alibi,slopes=s --input "$T/no_such.npz"
refused 2 'the suffix tells no format' bias log -o "$T/kept/a.pdf"
refused 2 'the suffix tells no format' bias log -o "$T/kept/a"
refused 2 '--json' bias log --json -o -
refused 2 'even number' bias t5,buckets=31,table=t5 --input "$small"
for option in --q --k --heads; do
    for value in 0 -1 x 1e3 0x10 '' 100000000000000000000; do
        refused 2 "$option" bias log $option "$value"
    done
done
refused 2 '--head' bias log --head 1
refused 2 '--head' bias alibi --head 8
refused 2 '--head' bias alibi --head -1
refused 2 '--q-offset' bias log --q-offset 1.5
refused 2 'fewer' bias log --q 100000 --k 100000
refused 1 'cannot be written' bias log -o /dev/full/a.png
for suffix in png svg csv npz safetensors; do
    refused 1 "no file can be made in its directory" bias log -o "$T/no_such/a.$suffix"
    ln -sf /dev/full "$T/full.$suffix"
    refused 1 'No space left' bias log -o "$T/full.$suffix"
done

# ---------------------------------------------------------------------------------------------------- explain

ok explain
check 'the worked example, byte for byte' '' "$(diff tests/golden/explain.txt "$T/out" | head -n 5)"
ok explain --bias log,lambda=0.3 --query 0
same 'its defaults' tests/golden/explain.txt "$T/out"
ok explain --query 2
has "for 'sat' \(query 2 of 0 to 4\)" '^Raw scores  *1\.0000  *2\.0000  *2\.0000  *1\.0000  *1\.5000' \
    '^ *A\[sat,sat\] = 0\.3029 \(d=0\) \|###############\|$' '^Output\[sat\] = \[0\.2170 0\.3309 0\.3877 0\.2341\]$' \
    '^Difference  *-0\.0198  *-0\.0045  *\+0\.0524  *-0\.0027  *-0\.0254'
ok explain --json
has '^\{"tokens": \["The", "cat", "sat", "on", "mat"\], "query": 0, "raw": \[0, 2, 1, 1, 1\.5\], "scaled": \[0, 1, 0\.5, 0\.5, 0\.75\], "bias": \[0, -0\.2079'
for key in score weights weights_plain difference out; do
    has "\"$key\": \\[[-0-9.e, ]+\\]"
done
has '"lse": 1\.915[0-9]*\}$'
ok explain --no-bias --query 4
has '^Standard  *0\.1892  *0\.1892  *0\.1892  *0\.1892  *0\.2430' '^Output\[mat\] = \[0\.3108 0\.3108 0\.3108 0\.3108\]'
ok explain --causal --query 0 --json
has '"score": \[0, null, null, null, null\], "weights": \[1, 0, 0, 0, 0\]'
ok explain --causal --q-offset -1 --json
has '"lse": null'
ok explain --causal --q-offset -1
has 'every key is masked'
ok explain 'the cat sat on the mat' --query 2 --bias linear,left=0.5,right=1
has '^q, k and v are made from the letters' "for 'sat' \(query 2 of 0 to 5\)" 'd \* \(0\.5 before the query, 1 after it\)'
cp "$T/out" "$T/plain"
ok explain the cat sat on the mat --query 2 --bias linear,left=0.5,right=1
same 'words or a sentence' "$T/plain" "$T/out"
command='printf ... | relpos explain -'
printf ' the\tcat\nsat  on the\r\nmat\n' | "$program" explain - --query 2 --bias linear,left=0.5,right=1 >"$T/out"
same 'a sentence through a pipe' "$T/plain" "$T/out"
ok explain 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen'
has '^The 12 heaviest of 14 keys' '^Heaviest before'
ok explain --all 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen'
has '^ *13  *fourteen '
check 'no list of the heaviest' 0 "$(grep -c heaviest "$T/out")"
ok explain --rope dim=4 --scale 1 --softcap 5 --window 2,1 a b c
ok explain --bias alibi --head 7 a b c
ok explain --input "$text" --query 17 --head 2 --bias alibi
has "for 'nation' \(query 17 of 0 to 330\)" '^Heaviest before'
ok explain --brief
has "query 0 'The'" '^  cat .*\+1 .*0\.2976 #+ +cat .*\+1 .*0\.3253 #+$' '^Share of weight by distance' \
    '^ *0  *20\.1 %  #+  *25\.1 %  #+$' '^ *1  *36\.8 % .* 37\.6 % '
ok explain --input "$text" --head 2 --query 17 --bias alibi --brief -o "$T/made/head.svg"
ok attend "$text" -o "$T/made/head.safetensors" --bias alibi --summary
ok attend "$text" -o "$T/made/head_plain.safetensors" --summary
shares=$(for file in head_plain head; do # offset 0 of head 2: each head has 661 offsets, from -330
    numbers "$T/made/$file.safetensors" profile | awk 'NR == 2 * 661 + 331 { printf "%.1f %%\n", 100 * $1 }'
done | paste -s -d ' ')
ok explain --input "$text" --head 2 --query 17 --bias alibi --brief
check 'the share of distance 0 is that of attend --summary' "$shares" \
    "$(sed -n '/^Share/,$s/^ *0  *\([0-9.]* %\) .* \([0-9.]* %\) .*/\1 \2/p' "$T/out")"
for suffix in png svg; do
    ok explain -o "$T/made/a.$suffix"
    same 'the text is printed besides' tests/golden/explain.txt "$T/out"
    ok explain --json -o "$T/made/b.$suffix"
    same 'the same picture again' "$T/made/a.$suffix" "$T/made/b.$suffix"
    refused 1 'no file can be made' explain -o "$T/no_such/a.$suffix"
    refused 1 'No space left' explain -o "$T/full.$suffix"
done
check 'a .png has its first bytes' ' 89 50 4e 47 0d 0a 1a 0a' "$(head -c 8 "$T/made/a.png" | od -An -t x1)"
check 'a .svg begins and ends' '<?xml version="1.0" encoding="UTF-8"?> </svg>' "$(head -n 1 "$T/made/a.svg") $(tail -n 1 "$T/made/a.svg")"
ok explain --input "$small" --batch 1 --head 3 --query 6 --bias t5,table=t5 --bias dense,bias=dense --relkey table=keys,left=3,right=4 \
    --relval table=values,left=3,right=4 --rope dim=8 --key-mask key_BOOL --mask row --lengths lengths --softcap-after 20
ok explain --input "$T/square.safetensors" --segments segments
ok explain --input "$more" --batch 1 --head 2 --query 3 --xl r=xr,u=xu --sink slopes --bias band,r=br,p=bp --bias log,q_positions=q_real \
    --q-offset first
has ' \+ P \+ B\) V' 'P = position scores of xl,r=xr,u=xu' 'a sink joins' 'over all keys and the sink'
"$program" explain "$(printf 'plain \033[31mred\033[0m \377\376 caf\303\251')" >"$T/out"
check 'words with control characters are spelt out' 0 "$(grep -c "$(printf '\033\\|\377')" "$T/out")"
has 'x1b\[31mred' "$(printf 'caf\303\251')"
printf 'a\000b\n' | "$program" explain - >"$T/out" 2>"$T/err"
check 'a text with a NUL' yes "$([ $? -le 1 ] && echo yes)"

refused 2 '--query: 5 is out of range \(0 to 4\)' explain --query 5
for value in -1 x 1.0 '' 100000000000000000000; do
    refused 2 '--query' explain --query "$value"
    refused 2 '--head' explain --head "$value"
    refused 2 '--batch' explain --batch "$value"
done
refused 2 '--head' explain --head 1
refused 2 '--head' explain --bias alibi --head 8
refused 2 '--batch' explain --batch 1
refused 2 '--head' explain --input "$small" --head 4
refused 2 'no words' explain ''
refused 2 'no words' explain '  ' ' '
refused 2 'the suffix tells no picture' explain -o "$T/kept/a.npz"
refused 2 'the suffix tells no picture' explain -o "$T/kept/a"
refused 2 'the suffix tells no picture' explain -o ''
refused 2 '--no-bias' explain --no-bias --bias log
refused 2 '--input' explain --input "$small" a b
refused 2 '--input' explain --bias t5
refused 2 '--input' explain --bias dense,bias=x
refused 2 '--input' explain --bias alibi,slopes=x
refused 2 '--input' explain --key-mask x
refused 2 '--input' explain --mask x
refused 2 '--input' explain --segments x
refused 2 '--input' explain --bias kerple
refused 2 '--input' explain --sink s
refused 2 '--input' explain --q-offset offsets
refused 2 'max_position|original' explain --rope scaling=yarn
refused 2 'dim' explain --rope dim=3
refused 2 'no term is called' explain --bias t6
refused 1 'no_such' explain --input "$T/no_such.npz"
refused 1 'it is a directory' explain --input "$T"
refused 1 '"x": not in the file' explain --input "$small" --mask x
refused 1 'axis of length 0' explain --input "$T/no_keys.safetensors"

# ---------------------------------------------------------------------------------------------------- the end

checks=$((checks + 1))
if [ -s "$T/no_mend" ]; then
    failed=$((failed + 1))
    printf 'FAILED messages that do not end in (how to mend), and how often\n'
    sort "$T/no_mend" | uniq -c | cat -v
fi
printf '%d checks, %d failed\n' "$checks" "$failed"
[ "$failed" -eq 0 ]
