#!/bin/sh
# t5.sh -- test relpos t5 proteins, encode and generate over several processes of mpirun: equal bits, and processes that die, stop or
# differ
#
#     tests/mpi/t5.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh
data=tests/t5/data/proteins
fasta=$data/proteins.fasta
model=$data/prott5

mkdir "$T/one" "$T/many"

# equal bits
awk 'BEGIN { srand(1); for (k = 0; k < 120; k++) { n = 1 + int(rand() * 60) * (k % 7 == 0 ? 8 : 1)
    for (i = 0; i < n; i++) printf "%d ", 2 + int(rand() * 30); print "" } }' >"$T/lines"
equal p.npz t5 proteins $model $fasta
equal p.npz t5 proteins $model $fasta --pool --dtype f32
equal p.fasta t5 proteins $data/prostt5 $fasta --3di
{ printf '>bad\nM1\n>copy\n'; sed '1,/LAST/d' $fasta; printf '>bad2\n'; cat $fasta; } >"$T/copies.fasta" # with bad records, and equal sequences
equal p.npz t5 proteins $model "$T/copies.fasta" --skip-bad "$T/skips"
check 'the list of bad records' 'bad bad2 ' "$(cut -f 2 "$T/skips" | tr '\n' ' ')"
equal p.fasta t5 proteins $data/prostt5 "$T/copies.fasta" --3di --skip-bad "$T/skips"
equal e.npz t5 encode tests/t5/data/v11 "$T/lines" --tokens
equal e.safetensors t5 encode tests/t5/data/v11 "$T/lines" --tokens --pad-to 30
equal e.jsonl t5 encode tests/t5/data/v11 "$T/lines" --tokens --pool mean --normalize
equal g.txt t5 generate tests/t5/data/v11 "$T/lines" --tokens --max-new-tokens 8
equal g.txt t5 generate tests/t5/data/v11 "$T/lines" --tokens --max-new-tokens 8 --beams 3 --return 2 --scores --batch 5
equal g.txt t5 generate tests/t5/data/v11 "$T/lines" --tokens --max-new-tokens 8 --sample --seed 3
printf 'attention\nknight\n' | timeout 200 mpirun -q --oversubscribe -n 2 "$program" t5 generate lab/model/phonemes >"$T/out" 2>"$T/err"
check 'lines of standard input' 'AH T EH N SH AH N;N AY T;' "$(tr '\n' ';' <"$T/out")"
RELPOS_MPI=off mpi -n 2 "$program" t5 generate lab/model/phonemes --text knight
# tokens are printed one by one, so the letters of the two processes may be mixed
check 'RELPOS_MPI=off: each process writes the line' AANNTTYY "$(tr -d ' \n' <"$T/out" | fold -w 1 | sort | tr -d '\n')"

# errors of all processes are printed once
mpi -n 3 "$program" t5 proteins $model $fasta --no-such-thing
one_line 2 'no option is called --no-such-thing'
mpi -n 3 "$program" t5 proteins $model $fasta -o "$T/nowhere/a.npz"
one_line 1 '-o: .*/nowhere/a.npz: cannot write to its folder: No such file'
mpi -n 3 "$program" t5 generate "$T/nowhere" --text a
one_line 1 'nowhere'
mpi -n 2 "$program" t5 proteins $model $fasta -o "$T/kept/a.npz"
one_line 1 'kept/a.npz: it exists, and this command did not write it'
printf '1 2\n3 many\n' >"$T/bad"
mpi -n 2 "$program" t5 encode tests/t5/data/v11 "$T/bad" --tokens -o "$T/many/a.jsonl"
one_line 1 'line 2: "many" is not a token number'
printf '1 2\n3 4000\n' >"$T/bad"
mpi -n 2 "$program" t5 generate tests/t5/data/v11 "$T/bad" --tokens -o "$T/many/a.txt"
one_line 1 '(rank 1: )?line 2, of 2 tokens: .*4000'
check 'no file' '' "$(ls -A "$T/many")"
RELPOS_MPI_SILENCE=1 mpi -n 2 "$program" t5 generate lab/model/phonemes --text knight
says 'RELPOS_MPI_SILENCE: .*3 to 86400'

# processes that differ
mkdir -p "$T/elsewhere/$data"
cp -r $data/prostt5 "$T/elsewhere/$model"
mpi -n 1 "$program" t5 proteins $model $fasta -o "$T/many/a.npz" : \
    -n 1 -wdir "$T/elsewhere" "$program" t5 proteins $model $fasta -o "$T/many/a.npz"
one_line 1 'rank 1: its model differs from rank 0: "checksum [0-9a-f]{16}, .* bytes as f32", not "checksum'
mpi -n 1 "$program" t5 proteins $model $fasta -o "$T/many/a.npz" : -n 1 "$program" t5 proteins $model $fasta -o "$T/many/a.npz" --pool
one_line 1 'rank 1: its arguments differ from rank 0: "t5 proteins .* --pool", not "'
mpi -n 1 "$program" t5 generate lab/model/phonemes --text a : -n 1 -x RELPOS_ISA=generic "$program" t5 generate lab/model/phonemes --text a
case $("$program" info | sed -n 's/^chosen *//p') in
generic) ;;
*) one_line 1 'rank 1: its instruction sets differ from rank 0: "generic of ' ;;
esac
mpi -n 2 "$program" t5 generate lab/model/phonemes --text a : -n 1 -wdir "$T" "$program" t5 generate lab/model/phonemes --text a
case $code in 0) ;; *) one_line 1 'rank 2: ' ;; esac # an installed program finds the model in any folder

# a model that becomes shorter while it is mapped: one of the processes says so, and all end. The other may open it later.
"$program" t5 pack tests/t5/data/v11 -o "$T/packed" 2>/dev/null
printf '1 2 3\n4 5\n' >"$T/lines"
for bytes in 4096 -10; do
    cp "$T/packed" "$T/shorter"
    mpi -n 2 -x LD_PRELOAD="$(dirname "$program")/tests/shrink.so" -x SHRINK=/shorter -x SHRINK_TO=$bytes \
        "$program" t5 encode "$T/shorter" "$T/lines" --tokens -o "$T/many/a.npz"
    one_line 1 '(rank 1: )?.*/shorter.*: (it became shorter while it was in use|it was changed while it was in use|cut short|.*not within the)|rank 1: its model differs'
    check 'no file' '' "$(ls -A "$T/many")"
done

# a library that does not fit
mkdir "$T/bin"
cp "$program" "$T/bin/relpos"
library=$(basename "$(ls "$(dirname "$program")"/librelpos_mpi.so.*.*.*)")
: >"$T/bin/${library%.*}"
mpi -n 2 "$T/bin/relpos" t5 generate lab/model/phonemes --text a
one_line 1 "mpirun started 2 processes, but ${library%.*} cannot be used: .*set RELPOS_MPI=off"
run t5 generate lab/model/phonemes --text knight
check 'without mpirun, the library is not needed' 0 "$code"

# stopped SIGNAL RANK: send a signal to a process of a long command when it has begun to write. Without a signal, that process would end
# after some seconds.
awk 'BEGIN { srand(2); for (k = 0; k < 4000; k++) { printf ">p%d\n", k; n = 100 + int(rand() * 900)
    for (i = 0; i < n; i++) printf "%s", substr("ACDEFGHIKLMNPQRSTVWY", 1 + int(rand() * 20), 1); print "" } }' >"$T/many.fasta"
stopped()
{
    rm -f "$T"/made/*
    interrupt "$1" "$2" "$T/made/long.npz.part" t5 proteins $model "$T/many.fasta" --pool -o "$T/made/long.npz" --threads 1
    check 'no output, but a file to continue' 'long.npz.part' "$(ls -A "$T/made")"
}
stopped KILL 1
says '^relpos: t5 proteins: stopped by a signal; [0-9]+ proteins are in .*long.npz.part'
stopped STOP 0
says '^relpos: rank 0 on .*: it has been silent for 3 s'
if ! quick; then
    stopped KILL 0
    stopped STOP 2
    says '^relpos: rank 2 on .*: it has been silent for 3 s'
    stopped TERM 1
fi
mpi -n 2 "$program" t5 proteins $model "$T/many.fasta" --pool -o "$T/made/long.npz"
check 'exit code' 0 "$code"
says 'computed [1-9][0-9]* proteins of [0-9]+ residues; [1-9][0-9]* were already there'
"$program" t5 proteins $model "$T/many.fasta" --pool -o "$T/one/long.npz" 2>/dev/null
# the continued file has the proteins in another order
"$program" t5 proteins $model "$T/many.fasta" --pool -o "$T/made/long.npz" 2>"$T/err"
says 'computed 0 proteins of 0 residues; 4000 were already there'
sizes="$(wc -c <"$T/one/long.npz") bytes"
check 'size of the continued file' "$sizes" "$(wc -c <"$T/made/long.npz") bytes"

# a process that dies or stops while lines are generated: no output, and the others end
awk 'BEGIN { for (k = 0; k < 300000; k++) print "abcdefghijklmnop" k }' >"$T/words"
cut_off() # cut_off SIGNAL RANK
{
    start_three t5 generate lab/model/phonemes "$T/words" -o "$T/many/words.txt" --threads 1
    sleep 2
    end_three "$1" "$2"
    check 'no output' '' "$(ls "$T/many")"
}
cut_off KILL 1
cut_off STOP 2
says '^relpos: rank 2 on .*: it has been silent for 3 s'

# rank 0 waits for its input while another process stops
mkfifo "$T/input"
rm -f "$T"/pid.*
RELPOS_MPI_SILENCE=3 timeout -k 5 200 mpirun -q --oversubscribe -n 2 sh -c 'echo $$ >"$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$T" \
    "$program" t5 encode tests/t5/data/v11 "$T/input" --tokens -o "$T/many/a.jsonl" >"$T/out" 2>"$T/err" &
job=$!
exec 9>"$T/input"
echo '1 2 3' >&9
while [ ! -s "$T/pid.1" ]; do sleep 0.1; done
sleep 1
kill -s STOP "$(cat "$T/pid.1")"
wait $job
code=$?
exec 9>&-
command='mpirun -n 2 relpos t5 encode with a pipe as input'
check 'exit code' 1 "$code"
check 'no output' '' "$(ls "$T/many")"
says '^relpos: rank 1 on .*: it has been silent for 3 s'
finish
