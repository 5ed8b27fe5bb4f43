#!/bin/sh
# encoder.sh -- test relpos embed, classify and rerank over several processes of mpirun: equal bits, runs that continue, and errors
#
#     tests/mpi/encoder.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/mpi.sh
data=tests/encoder/texts
quick && counts='1 2 3' || counts='1 2 3 4 8'

awk 'BEGIN { srand(3); for (k = 0; k < 2000; k++) { n = 1 + int(rand() * 12) * (k % 50 == 0 ? 20 : 1)
    for (i = 0; i < n; i++) printf "%s ", substr("the cat sleeps a dog where is it", 1 + int(rand() * 20), 3 + int(rand() * 9)); print "" } }' >"$T/texts"
{ echo 'n,title'; awk '{ gsub(/"/, ""); printf "%d,\"%s\nand a dog\"\n", NR, $0 }' "$T/texts"; } >"$T/table.csv"
awk 'NR % 2 { printf "%s\t", $0; next } { print }' "$T/texts" >"$T/pairs"

mkdir "$T/one" "$T/many"
equal e.npz embed $data/search "$T/texts"
equal e.safetensors embed $data/asymmetric "$T/table.csv" --column title --prompt query --type q8
equal e.jsonl embed $data/search "$T/texts" --normalize --prefix 'where '

# equal_lines ARGUMENT...: compare standard output
equal_lines()
{
    "$program" "$@" >"$T/one/out" 2>"$T/err"
    for ranks in $counts; do
        mpi -n $ranks "$program" "$@"
        check 'exit code' 0 "$code"
        same "$ranks processes: $*" "$T/one/out" "$T/out"
    done
}
equal_lines classify $data/labels "$T/texts" --all
equal_lines rerank $data/rank "$T/pairs"
equal_lines rerank $data/rank "$T/texts" --query 'where is the cat' --top 100

# OUT.part of one process is continued by three, and the reverse
{ cat "$T/texts"; printf 'bad \0 line\n'; } >"$T/bad"
"$program" embed $data/search "$T/bad" -o "$T/many/e.npz" 2>"$T/err"
says 'embed: [1-9][0-9]* vectors are in .*e.npz.part; the same command continues after them'
mpi -n 3 "$program" embed $data/search "$T/texts" -o "$T/many/e.npz"
check 'exit code' 0 "$code"
says 'embed: [1-9][0-9]* vectors are in .*e.npz.part, and are not computed again'
same 'one process, then three' "$T/one/e.npz" "$T/many/e.npz"
rm "$T/many/e.npz"
mpi -n 3 "$program" embed $data/search "$T/bad" -o "$T/many/e.npz"
one_line 1 'line 2001: it has a NUL byte'
check 'no output, but a file to continue' 'e.npz.part' "$(ls -A "$T/many")"
"$program" embed $data/search "$T/texts" -o "$T/many/e.npz" 2>"$T/err"
says 'embed: [1-9][0-9]* vectors are in .*e.npz.part, and are not computed again'
same 'three processes, then one' "$T/one/e.npz" "$T/many/e.npz"

# a process is killed when vectors have been written
for k in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do cat "$T/texts"; done >"$T/long"
for rank in 0 1; do
    rm -f "$T"/made/*
    interrupt KILL $rank "$T/made/long.npz.part" embed $data/search "$T/long" -o "$T/made/long.npz" --threads 1
    check 'no output, but a file to continue' 'long.npz.part' "$(ls -A "$T/made")"
done
mpi -n 2 "$program" embed $data/search "$T/long" -o "$T/made/long.npz"
check 'exit code' 0 "$code"
"$program" embed $data/search "$T/long" -o "$T/one/long.npz"
same 'after a killed process' "$T/one/long.npz" "$T/made/long.npz"

# errors are printed once
mpi -n 3 "$program" embed $data/search "$T/texts" -o "$T/nowhere/a.npz"
one_line 1 '-o: .*/nowhere/a.npz: cannot write to its folder'
mpi -n 2 "$program" embed $data/search "$T/texts" -o "$T/kept/x.npz" --prompt x
one_line 1 '--prompt: .*'
mpi -n 2 "$program" classify $data/search "$T/texts"
one_line 1 'has no classification head'
finish
