#!/bin/sh
# outputs.sh -- test relpos attend with unwritable files, kills, races, little memory, and its input as output
#
#     tests/cli/outputs.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/files.sh
make_small

refusals attend <<'END'
2 | the suffix is unknown | "$small" -o "$T/kept/a.txt"
2 | the suffix is unknown | "$small" -o "$T/kept/npz"
2 | the suffix is unknown | "$small" -o ''
END
mkdir "$T/dir.npz"
refusals attend <<'END'
1 | it is a directory | "$small" -o "$T/dir.npz"
1 | cannot create a file in its directory | "$small" -o "$T/no_such/a.npz"
1 | cannot create a file in its directory|Not a directory | "$small" -o "$small/a.npz"
END
ln -s full.npz "$T/round.npz" && ln -s round.npz "$T/full.npz"
refused 1 'round\.npz' attend "$small" -o "$T/round.npz"
rm "$T/full.npz" "$T/round.npz"
ln -s /dev/full "$T/full.npz"
refused 1 'No space left' attend "$small" -o "$T/full.npz"
check 'the device is still there' 'character special file' "$(stat -c %F /dev/full)"
if [ "$(id -u)" != 0 ]; then # root can write to every file
    mkdir "$T/sealed"
    cp "$T/kept/a.npz" "$T/sealed/a.npz"
    chmod 555 "$T/sealed"
    refused 1 'cannot create a file in its directory' attend "$small" -o "$T/sealed/a.npz"
    refused 1 'cannot be written' bias log -o "$T/sealed/a.png"
    chmod 755 "$T/sealed"
    chmod 444 "$T/sealed/a.npz"
    refused 1 'cannot be written: Permission' attend "$small" -o "$T/sealed/a.npz"
    chmod 000 "$T/sealed/a.npz"
    refused 1 'Permission' attend "$T/sealed/a.npz" -o "$T/kept/a.npz"
fi
(
    # A limit of 512 bytes on file sizes simulates a full disk.
    ulimit -f 1
    "$program" attend "$small" -o "$T/kept/a.npz" 2>"$T/err"
    echo $? >"$T/code"
)
command='ulimit -f 1; relpos attend'
check 'a file at its size limit' '1 1' "$(cat "$T/code") $(grep -c 'File too large' "$T/err")"
look
check 'existing files' "$kept" "$now"

# If the program is killed at any moment, or races with another process, the file is either the complete old one or the
# complete new one.
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
"$program" attend "$text" -o "$T/made/killed.safetensors" --bias alibi
check 'files of killed processes' '' "$(find "$T/made" -name '.relpos*')"
command='three of relpos attend at once'
for name in "$text" "$text" "$text"; do
    "$program" attend "$name" -o "$T/made/race.safetensors" --bias alibi &
done
wait
equal race new

# With little memory the command succeeds, or fails with one line.
for limit in 8000 20000 40000 80000 160000 320000; do
    command="ulimit -v $limit; relpos attend --weights"
    (
        # shellcheck disable=SC3045
        ulimit -v $limit
        "$program" info >"$T/out" 2>&1 || exit 1
        "$program" attend "$text" -o "$T/kept/a.npz" --weights --threads 8 2>"$T/err"
        echo $? >"$T/code"
    ) >/dev/null 2>&1 || continue # skip if the program cannot start with so little memory, as under a sanitizer
    check 'exit code, lines on standard error' yes "$(case "$(cat "$T/code") $(($(wc -l <"$T/err")))" in
        '0 0') echo yes ;;
        '1 1') look && [ "$now" = "$kept" ] && echo yes || echo 'and the older output is gone' ;;
        *) cat "$T/code" "$T/err" ;;
        esac)"
    printf 'what was here before\n' >"$T/kept/a.npz"
done

# The output must not be the input, under any name.
cp "$small" "$T/kept/in.safetensors"
ln -s in.safetensors "$T/kept/by_link.safetensors"
ln "$T/kept/in.safetensors" "$T/kept/by_name.safetensors"
look
kept=$now
refusals attend <<'END'
2 | is the input file | "$T/kept/in.safetensors" -o "$T/kept/in.safetensors"
2 | is the input file | "$T/kept/in.safetensors" -o "$T/kept/../kept/./in.safetensors"
2 | is the input file | "$T/kept/in.safetensors" -o "$T/kept/by_link.safetensors"
2 | is the input file | "$T/kept/by_link.safetensors" -o "$T/kept/in.safetensors"
2 | is the input file | "$T/kept/in.safetensors" -o "$T/kept/by_name.safetensors"
END
rm "$T/kept/"*.safetensors
printf 'what was here before\n' >"$T/kept/a.safetensors"
look
kept=$now

finish
