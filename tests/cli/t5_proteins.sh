#!/bin/sh
# t5_proteins.sh -- test relpos t5 proteins: FASTA files, outputs, and runs that are interrupted and continued
#
#     tests/cli/t5_proteins.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
data=tests/t5/data/proteins
fasta=$data/proteins.fasta
model=$data/prott5

ok t5 proteins --help
has '^relpos t5 proteins -- ' '^Usage: relpos t5 proteins ' '^  -o, --output ' '^      --3di '
refused 2 'no model was given' t5 proteins

# does ARGUMENT...: run the command, and check that it succeeds; it says on standard error what it does
does()
{
    run t5 proteins "$@"
    check 'exit code' 0 "$code"
}

# Print the smallest tested size of memory that suffices. It depends on the instruction set.
least()
{
    for size in 32 34 36 38 40 42 44 48 52 56 64; do
        "$program" t5 proteins "$@" --memory ${size}M >/dev/null 2>&1 && break
    done
    echo ${size}M
}

does $model $fasta -o "$T/made/a.npz" --threads 2
says '^t5 proteins: 6 proteins of 374 residues, the longest 164 \(sp\|Q1\|LAST\)$'
says '^t5 proteins: prott5, f32; [0-9.e-]+ GiB of weights, 0.0[0-9]+ GiB in all$'
says 'computed 6 proteins of 374 residues; 6 residues of 1 protein are not in the alphabet'
check 'no other file' 'a.npz' "$(ls "$T/made")"

# the same file for gzip, standard input, a pipe, lower case, CR LF and a second run
gzip -c $fasta >"$T/p.fasta.gz"
does $model "$T/p.fasta.gz" -o "$T/made/b.npz"
same 'gzip' "$T/made/a.npz" "$T/made/b.npz"
does $model - -o "$T/made/c.npz" <$fasta
same 'standard input' "$T/made/a.npz" "$T/made/c.npz"
cat "$T/p.fasta.gz" | "$program" t5 proteins $model - -o "$T/made/d.npz" 2>/dev/null
same 'gzip from a pipe' "$T/made/a.npz" "$T/made/d.npz"
sed '/^>/!y/ABCDEFGHIKLMNPQRSTVWYX/abcdefghiklmnpqrstvwyx/; s/$/\r/' $fasta >"$T/crlf.fasta"
does $model "$T/crlf.fasta" -o "$T/made/e.npz"
same 'lower case and CR LF' "$T/made/a.npz" "$T/made/e.npz"
does $model $fasta -o "$T/made/a.npz"
says 'computed 0 proteins of 0 residues; 6 were already there'
same 'a second run changes nothing' "$T/made/a.npz" "$T/made/b.npz"
does $model $fasta -o "$T/made/f.npz" --threads 2 --memory "$(least $model $fasta -o "$T/least.npz" --threads 2)"
same 'small batches and threads' "$T/made/a.npz" "$T/made/f.npz"

# a new protein is added to the file; another protein, type or model is refused
{ cat $fasta; printf '>new\nMKV\n'; } >"$T/more.fasta"
does $model "$T/more.fasta" -o "$T/made/b.npz"
says 't5 proteins: 1 protein is left, of 3 residues'
says 'computed 1 protein of 3 residues; 6 were already there'
printf '>one\nMK\n' >"$T/other.fasta"
run t5 proteins $model "$T/other.fasta" -o "$T/made/a.npz"
check 'exit code' 1 "$code"
says 'other.fasta: line 1: the output already has a protein one, with other residues'
refused 1 'it was written with relpos t5 proteins: weights [0-9a-f]{16} as f32, .* residues of f16, but this run has .* residues of f32' \
    t5 proteins $model $fasta -o "$T/made/a.npz" --dtype f32
refused 1 'it was written with .* family prott5, .* but this run has .* family prostt5' t5 proteins $data/prostt5 $fasta -o "$T/made/a.npz"
same 'the file is unchanged' "$T/made/a.npz" "$T/made/c.npz"
refused 1 'it exists, and this command did not write it' t5 proteins $model $fasta -o "$T/kept/a.npz"
for foreign in 'something else' '\0\0\0\0' '\0' 'P' 'PK\003\004 and more than a header of a zip archive has, but no zip archive'; do
    # shellcheck disable=SC2059
    printf "$foreign" | tee "$T/foreign" >"$T/made/z.npz.part"
    refused 1 'z.npz.part: it exists, and this command did not write it' t5 proteins $model $fasta -o "$T/made/z.npz"
    same 'and stays' "$T/foreign" "$T/made/z.npz.part"
    rm "$T/made/z.npz.part"
done

# HDF5, if this program was built with it
run t5 proteins $model $fasta -o "$T/made/a.h5"
if [ $code = 0 ]; then
    does $model "$T/more.fasta" -o "$T/made/a.h5"
    says 'computed 1 protein of 3 residues; 6 were already there'
    check 'no .part file' 'a.h5' "$(ls "$T/made" | grep h5)"
    refused 1 'it was written with .* residues of f16, but this run has .* means of f16' t5 proteins $model $fasta -o "$T/made/a.h5" --pool
    printf 'not HDF5' >"$T/made/b.h5"
    refused 1 'b.h5: it is not an HDF5 file' t5 proteins $model $fasta -o "$T/made/b.h5"
    mkdir "$T/damaged" # without the library, an error before any protein is computed
    : >"$T/damaged/$(grep -aoE 'libhdf5[a-z_]*\.so\.[0-9]+' "$program" | head -n 1)"
    export LD_LIBRARY_PATH="$T/damaged"
    refused 2 '^relpos: -o: .*c.h5: HDF5 cannot be loaded: .*libhdf5.* \(write .npz, or install libhdf5\)$' \
        t5 proteins $model $fasta -o "$T/made/c.h5"
    unset LD_LIBRARY_PATH
else
    says 'this program was built without HDF5'
fi

# one protein and one residue are counted in the singular
printf '>one\nU\n' >"$T/one.fasta"
does $model "$T/one.fasta" -o "$T/made/one.npz"
says '^t5 proteins: 1 protein of 1 residue, the longest 1 \(one\)$'
says '^t5 proteins: computed 1 protein of 1 residue; 1 residue of 1 protein is not in the alphabet and was read as others$'
does $model "$T/one.fasta" -o "$T/made/one.npz"
says '^t5 proteins: computed 0 proteins of 0 residues; 1 was already there$'

# a byte order mark, . as a stop; other formats are named
{ printf '\357\273\277'; sed 's/[*]/./g' $fasta; } >"$T/mark.fasta"
does $model "$T/mark.fasta" -o "$T/made/mark.npz"
same 'a byte order mark and . for *' "$T/made/c.npz" "$T/made/mark.npz"
printf '@read\nACGT\n+\nIIII\n' | gzip -c >"$T/reads.fastq.gz"
refused 1 'reads.fastq.gz: it is not FASTA, but FASTQ' t5 proteins $model "$T/reads.fastq.gz" -o "$T/kept/a.npz"

# equal sequences are computed once, and stored for each name; lower case and gaps do not matter
{ cat $fasta; printf '>copy1\n'; sed '1,/LAST/d; /^>/,$d' $fasta; printf '>x\nMK*V\n>y\nmk.-v*\n>z\nMKLV\n'; } >"$T/copies.fasta"
for out in copies.npz copies.2.npz; do does $model "$T/copies.fasta" -o "$T/made/$out" --threads 1; done
says 'computed 10 proteins of [0-9]* residues; 2 have the residues of another; '
does $model $fasta -o "$T/made/grown.npz"
does $model "$T/copies.fasta" -o "$T/made/grown.npz"
says 'computed 4 proteins of [0-9]* residues; 1 has the residues of another; 6 were already there'

# --skip-bad leaves out bad records, and says which
{
    printf '>bad1\nMK1V\n>bad/2\n\n'
    cat $fasta
    printf '>bad3\nM>K\n>\nMK\n>bad\tfive\001\nMK\n>one.1\nMKV\n>one/1\nMKL\n>bad7\n'
} >"$T/bad.fasta"
{ cat $fasta; printf '>one.1\nMKV\n'; } >"$T/good.fasta"
does $model "$T/good.fasta" -o "$T/made/good.npz"
refused 1 "bad.fasta: line 2: the character '1' is not a residue" t5 proteins $model "$T/bad.fasta" -o "$T/kept/a.npz"
n_lines=$(wc -l <$fasta)
tab=$(printf '\t')
cat >"$T/skips" <<EOF
1${tab}bad1${tab}line 2: the character '1' is not a residue (use A to Z, * or . for a stop, - for a gap)
3${tab}bad/2${tab}line 3: the protein bad/2 has no residues (remove the record)
$((n_lines + 5))${tab}bad3${tab}line $((n_lines + 6)): the character '>' is not a residue (use A to Z, * or . for a stop, - for a gap)
$((n_lines + 7))${tab}${tab}line $((n_lines + 7)): the protein has no name (write one after the >)
$((n_lines + 9))${tab}bad\\x09five\\x01${tab}line $((n_lines + 9)): the header contains the control character 0x01 (remove it)
$((n_lines + 13))${tab}one/1${tab}line $((n_lines + 13)): the name one_1 occurs twice, first in line $((n_lines + 11)) (rename one)
$((n_lines + 15))${tab}bad7${tab}line $((n_lines + 15)): the protein bad7 has no residues (remove the record)
EOF
for threads in 1 2; do
    does $model "$T/bad.fasta" -o "$T/made/skip$threads.npz" --skip-bad "$T/made/skips$threads" --threads $threads
    says "left out 7 bad records \(see .*skips$threads\)$"
    same 'the good records' "$T/made/good.npz" "$T/made/skip$threads.npz"
    same 'the list of bad records' "$T/skips" "$T/made/skips$threads"
done
does $model - -o "$T/made/skip3.npz" --skip-bad "$T/made/skips3" <"$T/bad.fasta"
same 'from standard input' "$T/made/good.npz" "$T/made/skip3.npz"
same 'and the list' "$T/skips" "$T/made/skips3"
head -c 8000 "$T/made/good.npz" >"$T/made/skip4.npz.part"
does $model "$T/bad.fasta" -o "$T/made/skip4.npz" --skip-bad "$T/made/skips4"
says '; [1-5] (was|were) already there.*; left out 7 bad records'
same 'continued' "$T/made/good.npz" "$T/made/skip4.npz"
same 'and the list' "$T/skips" "$T/made/skips4"
does $model "$T/bad.fasta" -o "$T/made/skip4.npz" --skip-bad "$T/made/skips5" # nothing is left to compute
same 'the list again' "$T/skips" "$T/made/skips5"
does $model "$T/good.fasta" -o "$T/made/skip6.npz" --skip-bad "$T/made/skips6"
check 'an empty list' 0 "$(wc -c <"$T/made/skips6" | tr -d ' ')"
run t5 proteins $model "$T/bad.fasta" -o "$T/made/skip.h5" --skip-bad "$T/made/skips7"
[ $code = 0 ] && same 'the list with HDF5' "$T/skips" "$T/made/skips7"
printf '>a\n1\n' >"$T/all.fasta"
run t5 proteins $model "$T/all.fasta" -o "$T/made/none.npz" --skip-bad "$T/made/skips8"
check 'exit code' 1 "$code"
says 'all.fasta: all records are bad \(see .*skips8\)'
check 'the list of all' 1 "$(grep -c "^1${tab}a${tab}line 2: " "$T/made/skips8")"
check 'no output' '' "$(ls "$T/made" | grep none)"
printf 'MKV\n' >"$T/text.fasta" # not a fault of a record
refused 1 'text.fasta: line 1: no header comes before it' t5 proteins $model "$T/text.fasta" -o "$T/kept/a.npz" --skip-bad "$T/made/never"
{ gzip -c $fasta; printf '>tail\nMKV\n'; } >"$T/tail.fasta.gz" # gzread would end without an error
refused 1 'tail.fasta.gz: line [0-9]*: cannot be read: bytes that are no gzip follow the compressed data' \
    t5 proteins $model "$T/tail.fasta.gz" -o "$T/made/tail.npz"
{ head -n 4 $fasta | gzip -c; tail -n +5 $fasta | gzip -c; } >"$T/members.fasta.gz"
does $model "$T/members.fasta.gz" -o "$T/made/members.npz"
same 'two members of gzip' "$T/made/a.npz" "$T/made/members.npz"
gzip -c $fasta | head -c 150 >"$T/cut.fasta.gz"
refused 1 'the compressed data ends too early' t5 proteins $model "$T/cut.fasta.gz" -o "$T/kept/a.npz" --skip-bad "$T/made/never"
refused 2 '--skip-bad: .*a.npz: it is also the output' t5 proteins $model $fasta -o "$T/kept/a.npz" --skip-bad "$T/kept/a.npz"
refused 2 '--skip-bad: .*one.fasta: it is also the FASTA file' t5 proteins $model "$T/one.fasta" -o "$T/made/x.npz" --skip-bad "$T/one.fasta"
refused 1 'config.json: the model was read from this file' t5 proteins $model $fasta -o "$T/made/x.npz" --skip-bad $model/config.json
refused 1 '^relpos: --skip-bad: .*skips: cannot write to its folder' t5 proteins $model $fasta -o "$T/made/x.npz" --skip-bad "$T/nowhere/skips"

# a record is refused at the first residue that does not fit the memory
{ printf '>a\nMKV\n>long\n'; head -c 40000000 /dev/zero | tr '\0' A; printf '\n>b\nMKL\n'; } | gzip -c >"$T/long.fasta.gz"
refused 1 'long.fasta.gz: line 4: the protein long has more than [0-9]* residues, which is the limit \(remove it\); 0.0625 GiB of memory allow no more \(see --memory\)' \
    t5 proteins $model "$T/long.fasta.gz" -o "$T/made/x.npz" --memory 64M
(
    ulimit -v 800000
    "$program" t5 proteins $model "$T/long.fasta.gz" -o "$T/made/x.npz" --threads 1 >"$T/out" 2>"$T/err"
)
code=$? command='t5 proteins with limited memory'
check 'exit code' "$([ -z "${ASAN_OPTIONS##*asan*}" ] && echo 1 || echo $code)" "$code"
does $model "$T/long.fasta.gz" -o "$T/made/long.npz" --memory 64M --skip-bad "$T/made/skips9"
check 'the long record' "3${tab}long" "$(cut -f 1,2 "$T/made/skips9")"
printf '>a\nMKV\n>b\nMKL\n' >"$T/short.fasta"
does $model "$T/short.fasta" -o "$T/made/short.npz"
same 'the others' "$T/made/short.npz" "$T/made/long.npz"
small=$(least $model $fasta -o "$T/least2.npz" --threads 2) # enough for 164 residues, but not for 3,000
{ cat $fasta; printf '>b/1\n'; head -c 3000 /dev/zero | tr '\0' A; } >"$T/middle.fasta"
refused 1 'are too few: the protein b_1 of 3000 residues needs' t5 proteins $model "$T/middle.fasta" -o "$T/made/x.npz" --memory "$small" --threads 2
does $model "$T/middle.fasta" -o "$T/made/middle.npz" --memory "$small" --threads 2 --skip-bad "$T/made/skips10"
check 'what --memory does not allow' "$((n_lines + 1))${tab}b_1${tab}line $((n_lines + 1)): 3000 residues, but --memory allows " \
    "$(sed 's/allows .*/allows /' "$T/made/skips10")"
same 'the others' "$T/made/c.npz" "$T/made/middle.npz"

# interrupted runs: whatever bytes of the file exist, the next run gives the same file
"$program" t5 proteins $model $fasta -o "$T/made/whole.npz" 2>/dev/null
size=$(wc -c <"$T/made/whole.npz")
for keep in 0 250 300 1000 6000 10000 $((size - 1)) "$size"; do
    head -c "$keep" "$T/made/whole.npz" >"$T/made/cut.npz.part"
    does $model $fasta -o "$T/made/cut.npz"
    same "continued after $keep bytes" "$T/made/whole.npz" "$T/made/cut.npz"
    rm "$T/made/cut.npz"
done
{ head -c 3000 "$T/made/whole.npz"; head -c 9000 /dev/zero; } >"$T/made/cut.npz.part" # a member with the wrong checksum
does $model $fasta -o "$T/made/cut.npz"
same 'a damaged last member' "$T/made/whole.npz" "$T/made/cut.npz"

# damaged arrays are computed again: in the .part file, in a complete .npz, and where .part becomes HDF5
# hurt FROM TO: copy a file with eight bytes changed in the middle, where an array is
hurt()
{
    middle=$(($(wc -c <"$1") / 2))
    { head -c $middle "$1"; printf 'damaged!'; tail -c +$((middle + 9)) "$1"; } >"$2"
}
rm -f "$T/made/cut.npz"
for to in cut.npz.part cut.npz cut.h5.part; do
    hurt "$T/made/whole.npz" "$T/made/$to"
    run t5 proteins $model $fasta -o "$T/made/${to%.part}"
    [ $to = cut.h5.part ] && [ $code = 2 ] && continue # built without HDF5
    check 'exit code' 0 "$code"
    says 't5 proteins: arrays that do not match their checksums, and are left out: 1'
    says 't5 proteins: 1 protein is left, '
    says 'computed 1 protein of [0-9]* residues; 5 were already there'
    whole=$T/made/whole.${to#cut.}
    "$program" t5 proteins $model $fasta -o "${whole%.part}" 2>/dev/null
    same 'an array was damaged' "${whole%.part}" "$T/made/${to%.part}"
done

# a bit of any byte of a complete file changed: the next run mends it; where nothing is left to compute, it may refuse it
# flip FROM AT TO: copy a file with a bit of byte AT changed
flip()
{
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    mask=$((1 << $2 % 8))
    # shellcheck disable=SC2059
    { head -c "$2" "$1"; printf "\\$(printf %o $((byte & mask ? byte - mask : byte + mask)))"; tail -c +$(($2 + 2)) "$1"; } >"$3"
}
printf '>aa\nMKV\n' >"$T/one_protein.fasta"
printf '>aa\nMKV\n>bb\nMK\n' >"$T/two_proteins.fasta"
does $model "$T/one_protein.fasta" -o "$T/made/one_protein.npz"
does $model "$T/two_proteins.fasta" -o "$T/made/two_proteins.npz"
size=$(wc -c <"$T/made/one_protein.npz")
at=0
while [ $at -lt "$size" ]; do
    flip "$T/made/one_protein.npz" $at "$T/made/flipped.npz"
    cp "$T/made/flipped.npz" "$T/flipped"
    run t5 proteins $model "$T/one_protein.fasta" -o "$T/made/flipped.npz"
    command="t5 proteins with byte $at changed"
    if [ $code = 1 ]; then
        says 'it exists, and this command did not write it|it was written with'
        same 'and stays' "$T/flipped" "$T/made/flipped.npz"
    else
        check 'exit code' 0 "$code"
        same 'mended' "$T/made/one_protein.npz" "$T/made/flipped.npz"
    fi
    at=$((at + 1))
done
says 'the directory of the output is damaged, and is written again'
for at in 3 20 185; do # in the header and the data of a protein that is not in the FASTA file
    flip "$T/made/two_proteins.npz" $((size - 74 + at)) "$T/made/flipped.npz"
    cp "$T/made/flipped.npz" "$T/flipped"
    refused 1 'flipped.npz: it is damaged: what follows its intact arrays is not their directory' \
        t5 proteins $model "$T/one_protein.fasta" -o "$T/made/flipped.npz"
    same 'and stays' "$T/flipped" "$T/made/flipped.npz"
done
rm -f "$T/made/flipped.npz"

# OUT.part replaces OUT, so it may not lack what OUT has
cp "$T/made/whole.npz" "$T/made/cut.npz"
hurt "$T/made/whole.npz" "$T/made/cut.npz.part"
does $model $fasta -o "$T/made/cut.npz"
says 'computed 1 protein of [0-9]* residues; 5 were already there'
same 'both were there' "$T/made/whole.npz" "$T/made/cut.npz"
hurt "$T/made/whole.npz" "$T/made/cut.npz.part"
printf '>new\nMKV\n' >"$T/new.fasta"
run t5 proteins $model "$T/new.fasta" -o "$T/made/cut.npz"
check 'exit code' 1 "$code"
says 'cut.npz.part: it lacks .*, which .*cut.npz has and the FASTA file does not .remove one of the two files.'
same 'OUT is unchanged' "$T/made/whole.npz" "$T/made/cut.npz"
rm -f "$T"/made/cut.*

# killed and stopped in the middle
awk 'BEGIN { for (k = 0; k < 400; k++) { printf ">p%d\n", k; for (i = 0; i < 40 + k % 300; i++) printf "%s", substr("ACDEFGHIKLMNPQRSTVWY", (i * 7 + k) % 20 + 1, 1); print "" } }' >"$T/many.fasta"
does $model "$T/many.fasta" -o "$T/made/all.npz"
for signal in KILL TERM INT; do
    for pause in 0.02 0.05 0.1 0.2; do
        "$program" t5 proteins $model "$T/many.fasta" -o "$T/made/part.npz" --threads 1 2>"$T/err" &
        sleep $pause
        kill -s $signal $! 2>/dev/null
        wait $!
        [ -e "$T/made/part.npz" ] && break
    done
    command="after signals $signal"
    does $model "$T/many.fasta" -o "$T/made/part.npz"
    same "continued after $signal" "$T/made/all.npz" "$T/made/part.npz"
    check 'no .part file' '' "$(ls "$T/made" | grep part$)"
    rm "$T/made/part.npz"
done

# a full disk: what fits is kept, and the next run continues
(
    ulimit -f 200
    trap '' XFSZ
    "$program" t5 proteins $model "$T/many.fasta" -o "$T/made/full.npz" >"$T/out" 2>"$T/err"
)
code=$? command='t5 proteins with a limited file size'
says 'full.npz.part: cannot be written: File too large'
check 'no output' 'full.npz.part' "$(ls "$T/made" | grep full)"
does $model "$T/many.fasta" -o "$T/made/full.npz"
says 'computed [1-9][0-9]* proteins of [0-9]* residues; 100 have the residues of another; [1-9][0-9]* were already there'
same 'continued after a full disk' "$T/made/all.npz" "$T/made/full.npz"

# FASTA files that are not valid
ln -s /dev/full "$T/link.npz"
# shellcheck disable=SC2059
bad() # bad PATTERN TEXT: a file with these contents is refused, from a file and from a pipe
{
    printf "$2" >"$T/bad.fasta"
    refused 1 "$1" t5 proteins $model "$T/bad.fasta" -o "$T/kept/n.npz"
    run t5 proteins $model - -o "$T/kept/n.npz" <"$T/bad.fasta"
    check 'exit code' 1 "$code"
    says "$1"
    rm -f "$T/kept/n.npz.part"
}
bad 'line 5: the name a_b occurs twice, first in line 1' '>a.b\nMK\n>c\nM\n>a/b\nMK\n'
bad 'line 3: the protein b has no residues' '>a\nMK\n>b\n\n>c\nM\n'
bad 'line 3: the protein b has no residues' '>a\nMK\n>b\n**--'
bad 'line 2: the protein has no name' '\n>\nM'
bad 'line 1: no header comes before it' 'MKV\n>a\nM\n'
bad 'it has no proteins' '\n ; \n'
bad 'it has no proteins' ''
bad 'line 2: the byte 0x00 is not a residue' '>a\nM\000K\n'
bad "line 2: the character '1' is not a residue" '>a\nM1K\n'
bad 'line 1: the header contains the control character 0x00' '>a\000b\nMK\n'
bad 'line 1: the header is not UTF-8' '>a\377b\nMK\n'
{ printf '>'; head -c 70000 /dev/zero | tr '\0' x; printf '\nM\n'; } >"$T/long.fasta"
refused 1 'line 1: the header is longer than 60000 bytes' t5 proteins $model "$T/long.fasta" -o "$T/kept/n.npz"
head -c 150 "$T/p.fasta.gz" >"$T/cut.fasta.gz"
refused 1 'the compressed data ends too early' t5 proteins $model "$T/cut.fasta.gz" -o "$T/kept/n.npz"
refusals t5 proteins <<END
1 | cannot be opened: No such file | $model "$T/none.fasta" -o "$T/kept/n.npz"
1 | it is a directory | $model tests -o "$T/kept/n.npz"
1 | cannot write to its folder | $model $fasta -o "$T/none/n.npz"
1 | it is not a model of proteins: its tokenizer | tests/t5/data/byt5 $fasta -o "$T/kept/n.npz"
1 | the family of the model is unknown: .*tokenizer.json | tests/t5/data/encoder $fasta -o "$T/kept/n.npz"
1 | the embedding has 64 rows, which are too few | tests/t5/data/encoder $fasta --family prostt5 -o "$T/kept/n.npz"
1 | the family "esm" is unknown | $model $fasta --family esm -o "$T/kept/n.npz"
1 | 0.0313 GiB are too few: the protein sp.Q1.LAST of 164 residues needs 0.0[34][0-9]* GiB | $model $fasta -o "$T/kept/n.npz" --threads 2 --memory 32.1M
2 | the value "8X" is not a size | $model $fasta -o "$T/kept/n.npz" --memory 8X
2 | the type "f64" is unknown | $model $fasta -o "$T/kept/n.npz" --dtype f64
2 | the suffix is unknown | $model $fasta -o "$T/kept/n.txt"
2 | no output file was given | $model $fasta
2 | no FASTA file was given | $model
2 | --3di writes FASTA | $model $fasta -o "$T/kept/n.npz" --3di
2 | --3di writes FASTA | $model $fasta -o "$T/kept/n.h5" --3di
2 | only --3di uses it | $model $fasta -o "$T/kept/n.npz" --head x
2 | it writes letters, not numbers .remove --pool | $model $fasta -o - --3di --pool
1 | only ProstT5 predicts 3Di letters | $model $fasta -o - --3di --head $data/prostt5/cnn.safetensors
1 | it has no cnn.safetensors or model.pt | $model $fasta -o - --3di
1 | the tensor classifier.0.weight is missing | $data/prostt5 $fasta -o - --3di --head $data/prostt5/model.safetensors
2 | it is not a regular file | $model $fasta -o "$T/link.npz"
END

# a family by name, a vector for each protein, 3Di letters
does tests/t5/data/encoder $fasta --family prott5 -o "$T/made/named.npz"
does $model $fasta --pool -o "$T/made/pool.npz"
does $data/prostt5 $fasta --3di -o -
check 'headers' "$(grep '^>' $fasta | tr -d '\r' | sed 's/>\(.*\)>/>\1/')" "$(grep '^>' "$T/out")"
check 'letters' "$(printf '142 1 33 29 5 164 ')" "$(grep -v '^>' "$T/out" | awk '{ printf "%d ", length }')"
check 'only letters of 3Di' '' "$(grep -v '^>' "$T/out" | tr -d 'ACDEFGHIKLMNPQRSTVWY\n')"
cp "$T/out" "$T/letters"
does $data/prostt5 "$T/p.fasta.gz" --3di -o "$T/made/s.fasta" --threads 2 \
    --memory "$(least $data/prostt5 $fasta --3di -o "$T/least.fasta" --threads 2)"
same 'letters with small batches' "$T/letters" "$T/made/s.fasta"

# the commands of the guide
mkdir "$T/guide"
sed -n '/t5_proteins.sh runs these commands/,/^```$/s/^relpos //p' docs/proteins.md >"$T/commands"
check 'commands of the guide' 4 "$(wc -l <"$T/commands" | tr -d ' ')"
while read -r line; do
    # shellcheck disable=SC2046
    run $(printf '%s' "$line" | sed "s#-o #-o $T/guide/#; s#proteins prostt5.relpos#proteins $T/guide/prostt5.relpos#")
    check 'exit code' 0 "$code"
done <"$T/commands"
check 'files of the guide' 'prostt5.relpos residues.npz structures.fasta vectors.npz' "$(ls "$T/guide" | paste -sd' ')"
finish
