# files.sh -- sourced after checks.sh. Functions that create input files byte by byte, and read the numbers of output files. A
# .safetensors file is a JSON header followed by raw numbers; an uncompressed .npz file is only slightly more complex.
# SPDX-License-Identifier: Apache-2.0
text=examples/data/gettysburg.safetensors

# ---------------------------------------------------------------------------------------------------- numbers as bytes

# bytes WIDTH NUMBER...: print unsigned integers as bytes, least significant first
bytes()
{
    width=$1 octal=''
    shift
    for number; do
        n=0
        while [ $n -lt "$width" ]; do
            octal="$octal\\$((number % 256 / 64))$((number % 64 / 8))$((number % 8))"
            number=$((number / 256)) n=$((n + 1))
        done
    done
    # shellcheck disable=SC2059
    printf "$octal"
}

# f32 NUMBER...: print numbers as f32; nan, inf and -inf are allowed
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

some() # some FROM N: print N f32 numbers of a trained network, beginning with number FROM
{
    tail -c +$((200001 + 4 * $1)) "$text" | head -c $((4 * $2))
}

zeros() # zeros BYTES: print this number of zero bytes
{
    head -c "$1" /dev/zero
}

# ---------------------------------------------------------------------------------------------------- .safetensors

# size_of DTYPE SHAPE: set $size to the number of bytes of an array
size_of()
{
    case $1 in F64 | I64 | U64) size=8 ;; F32 | I32 | U32) size=4 ;; F16 | BF16 | I16 | U16) size=2 ;; *) size=1 ;; esac
    IFS=,
    for axis in $2; do
        size=$((size * axis))
    done
    unset IFS
}

# To create a file: begin; put NAME DTYPE SHAPE COMMAND ARGUMENT... for each array, whose bytes the command prints; save
# FILE.
begin()
{
    header='' end=0
    : >"$T/data"
}
put()
{
    size_of "$2" "$3"
    header="$header${header:+,}\"$1\":{\"dtype\":\"$2\",\"shape\":[$3],\"data_offsets\":[$end,$((end + size))]}"
    end=$((end + size))
    shift 3
    "$@" >>"$T/data"
}
save()
{
    raw "{$header}" "$T/data" "$1"
}
raw() # raw HEADER DATAFILE FILE: write a file with an arbitrary header before the data
{
    { bytes 8 ${#1}; printf '%s' "$1"; cat "$2"; } >"$3"
}

# ---------------------------------------------------------------------------------------------------- .npz

# To create a stored .npz: zip_begin; zip_put NAME DESCR SHAPE COMMAND ARGUMENT...; zip_save FILE. gzip
# computes the CRC-32.
zip_begin()
{
    entries=0
    : >"$T/zip"
    : >"$T/directory"
}
zip_put()
{
    name=$1.npy npy="{'descr': $2, 'fortran_order': False, 'shape': ($3), }"
    shift 3
    { # magic, version 1.0, length of the header, header, data
        printf '\223NUMPY\001\000'
        bytes 2 ${#npy}
        printf '%s' "$npy"
        "$@"
    } >"$T/npy"
    size=$(($(wc -c <"$T/npy"))) where=$(($(wc -c <"$T/zip"))) entries=$((entries + 1))
    {
        bytes 2 20 0 0 0 33 # version, flags, method (stored), time, date
        gzip -c <"$T/npy" | tail -c 8 | head -c 4
        bytes 4 $size $size
        bytes 2 ${#name} 0
    } >"$T/entry"
    { printf 'PK\003\004'; cat "$T/entry"; printf '%s' "$name"; cat "$T/npy"; } >>"$T/zip"
    { printf 'PK\001\002'; bytes 2 20; cat "$T/entry"; bytes 2 0 0 0; bytes 4 0 $where; printf '%s' "$name"; } >>"$T/directory"
}
zip_save()
{
    {
        cat "$T/zip" "$T/directory"
        printf 'PK\005\006'
        bytes 2 0 0 $entries $entries
        bytes 4 $(($(wc -c <"$T/directory"))) $(($(wc -c <"$T/zip")))
        bytes 2 0
    } >"$1"
}

# ---------------------------------------------------------------------------------------------------- the numbers of a file

# numbers FILE.safetensors NAME: print the numbers of an f32 or f64 array, one per line
numbers()
{
    # shellcheck disable=SC2046
    set -- "$1" $(grep -aoE -m 1 "\"$2\":\\{\"dtype\":\"F(32|64)\",\"shape\":\\[[0-9,]*\\],\"data_offsets\":\\[[0-9]+,[0-9]+" "$1" |
        sed 's/.*"F\([0-9]*\)".*\[\([0-9]*\),/\1 \2 /; q') $(od -An -t u8 -N 8 "$1")
    [ $# = 5 ] || { echo "no such array"; return; }
    od -An -v -w$(($2 / 8)) -t f$(($2 / 8)) -j $((8 + $5 + $3)) -N $(($4 - $3)) "$1" | tr -d ' '
}

# near WHAT TOLERANCE FILE NAME FILE NAME: compare two arrays of equal length, element by element
near()
{
    numbers "$3" "$4" >"$T/one"
    numbers "$5" "$6" >"$T/two"
    check "$1: $4 is near $6" near "$(paste "$T/one" "$T/two" | awk -v most="$2" '
        { d = $1 - $2; d = d < 0 ? -d : d; if (NF != 2 || ($1 != $2 && !(d <= most))) { print NR ": " $1 " and " $2; exit } n = NR }
        END { if (n && n == NR) print "near" }')"
}

# ---------------------------------------------------------------------------------------------------- inputs that scripts share

# make_small: create $small with arrays for most terms and masks, and q, k, v of 2 batch entries, 4 heads (2 for keys),
# 7 queries, 9 keys, width 8 and values of width 5.
small=$T/small.safetensors
qkv()
{
    put q F32 2,4,7,8 some 0 448
    put k F32 2,2,9,8 some 5000 288
    put v F32 2,2,9,5 some 9000 180
}

make_small()
{
    begin
    qkv
    put table F32 4,8 some 100 32 # left=3, right=4
    put t5 F32 32,4 some 200 128
    put t5_one F32 32,1 some 400 32
    put slopes F32 4 f32 0.5 0.25 0.125 0.0625
    put dense F32 4,7,9 some 500 252
    put nothing F32 7,9 zeros 252
    put keys F32 8,8 some 900 64
    put keys_h F32 4,8,8 some 1000 256
    put values F32 8,5 some 1300 40
    put bad F32 4 f32 nan inf -inf 0
    put real F32 9 f32 1 1 1 1 0 1 1 0 1
    put lengths I64 2 bytes 8 9 4
    put no_keys I64 2 bytes 8 0 0
    put lengths4 I32 2 bytes 4 9 4
    for type in I64:8 U64:8 I32:4 U32:4 I16:2 U16:2 I8:1 U8:1 BOOL:1; do
        put "key_${type%:*}" "${type%:*}" 2,9 bytes ${type#*:} 1 1 0 1 1 1 0 1 1 0 1 1 1 1 1 1 1 0
    done
    put key_odd U8 2,9 bytes 1 1 2 0 255 1 1 0 1 1 0 3 1 1 1 1 1 1 0 # any non-zero number is true
    put row BOOL 9 bytes 1 1 1 0 1 1 1 1 0 1
    put none BOOL 7,9 zeros 63
    put blocks BOOL 7,7 bytes 1 1 1 1 0 0 0 0 1 1 1 0 0 0 0 1 1 1 0 0 0 0 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1
    put segments I32 2,7 bytes 4 5 5 5 8 8 8 8 5 5 5 8 8 8 8
    put sq F32 2,1,7,8 some 0 112 # for segments: equal numbers of queries and keys
    put odd_type F8_E4M3 2 printf '\001\000'
    save "$small"
}

# make_square: create $square with equal numbers of queries and keys, which segments need, and the equivalent
# mask.
square=$T/square.safetensors
make_square()
{
    begin
    put q F32 2,1,7,8 some 0 112
    put k F32 2,1,7,8 some 3000 112
    put v F32 2,1,7,8 some 6000 112
    put segments I32 2,7 bytes 4 5 5 5 8 8 8 8 5 5 5 8 8 8 8
    put blocks BOOL 7,7 bytes 1 1 1 1 0 0 0 0 1 1 1 0 0 0 0 1 1 1 0 0 0 0 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1 0 0 0 1 1 1 1
    save "$square"
}

# make_more: create $more with the small file's q, k and v, arrays for the other terms, and an incoming
# gradient.
more=$T/more.safetensors
make_more()
{
    begin
    qkv
    put dout F32 2,4,7,5 some 2000 280
    put table F32 4,8 some 100 32
    put again F32 4,8 some 100 32 # the same numbers as in table
    put slopes F32 4 f32 0.5 0.25 0.125 0.0625
    put no_sink F32 4 f32 -inf -inf -inf -inf
    put w1 F32 3,1 some 2300 3
    put b1 F32 3 some 2310 3
    put w2 F32 4,3 some 2320 12
    put b2 F32 4 some 2340 4
    put w2m F32 2,3 some 2350 6
    put b2m F32 2 some 2360 2
    put w3 F32 4,2 some 2370 8
    put rt F32 4,7 some 2400 28
    put br F32 2,4,7,3 some 2500 168
    put bp F32 3,5 some 2700 15
    put bp_h F32 4,3,5 some 2800 60
    put logf F32 2,4,9 some 2900 72
    put xr F32 4,15,8 some 3000 480
    put x0 F32 15,8 zeros 480
    put xu F32 4,8 some 3500 32
    put xv F32 4,8 some 3540 32
    put k_pos F32 4,6,8 some 3600 192
    put q_pos F32 4,6,8 some 3800 192
    put dense F32 4,7,9 some 500 252
    put keys F32 8,8 some 900 64
    put values F32 8,5 some 1300 40
    put q_real F32 7 f32 0.25 0.5 2 3.75 4 5.5 6
    put q_index F32 7 f32 0 1 2 3 4 5 6
    put q_nan F32 7 f32 0 1 2 nan 4 5 6
    put q_whole I64 7 bytes 8 0 1 2 3 4 5 6
    put k_whole I32 2,9 bytes 4 0 1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 8
    put q_keep BOOL 7 bytes 1 1 0 1 1 1 0 1
    put first I64 2 bytes 8 2 0
    put both I32 2 bytes 4 2 2
    put start U8 2 bytes 1 0 0
    save "$more"
}

# make_small_npz: create $small_npz with the small file's q, k, v and a mask
small_npz=$T/small.npz
make_small_npz()
{
    zip_begin
    zip_put q "'<f4'" 2,4,7,8 some 0 448
    zip_put k "'<f4'" 2,2,9,8 some 5000 288
    zip_put v "'<f4'" 2,2,9,5 some 9000 180
    zip_put row "'|b1'" 9, bytes 1 1 1 0 1 1 1 1 0 1
    zip_save "$small_npz"
}

# make_no_keys: create $no_keys with queries and no keys
no_keys=$T/no_keys.safetensors
make_no_keys()
{
    begin
    put q F32 1,2,4,8 some 0 64
    put k F32 1,2,0,8 :
    put v F32 1,2,0,8 :
    save "$no_keys"
}

# ---------------------------------------------------------------------------------------------------- outputs with a name

# attend_to NAME OPTION...: run attend on the small file and write $T/made/NAME.safetensors; sets
# $made to this path
attend_to()
{
    made=$T/made/$1.safetensors
    shift
    ok attend "$small" -o "$made" "$@"
}

# prepare NAME OPTION...: like attend_to, without counting a check, for an output that is only compared
prepare()
{
    made=$T/made/$1.safetensors
    shift
    "$program" attend "$small" -o "$made" "$@" || exit 1
}

# equal NAME NAME: check that two outputs have the same bytes
equal()
{
    same "$1 equals $2" "$T/made/$1.safetensors" "$T/made/$2.safetensors"
}

# differs NAME NAME: check that two outputs differ
differs()
{
    if cmp -s "$T/made/$1.safetensors" "$T/made/$2.safetensors"; then found=equal; else found=differs; fi
    command="attend: $1 and $2"
    check 'other numbers' differs "$found"
}
