#!/bin/sh
# environments.sh -- test commands in unusual environments: small limits, missing and full file systems, few processors, other locales,
# and odd names of files. A command either writes the bytes that it writes elsewhere, or says why not and leaves no file.
#
#     tests/cli/environments.sh PATH/TO/relpos
#
# What this machine cannot provide (namespaces, locales) is named at the end.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
model=tests/encoder/texts/search t5=$PWD/tests/t5/data/v11 attention=$PWD/examples/data/gettysburg.safetensors not_here=''
printf 'the cat sleeps\na dog\nwhere is it\n' >"$T/texts"
yes 'the cat sat on the mat.' | head -n 40 >"$T/prose"
printf '%s\n' 'text = prose' layers=1 width=16 heads=2 mlp=16 length=4 batch=2 steps=3 warmup=1 vocab=256 'position = t5,buckets=4,bidirectional=0' >"$T/train.lab"
# sanitizers reserve terabytes of addresses, and read their options from /proc
if ldd "$program" 2>/dev/null | grep -q asan || grep -qa __asan_init "$program"; then sanitizer=1; else sanitizer=0; fi

# The leak detector reports memory that glibc keeps for LOCPATH. Other tests look for leaks.
ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0

# each: run one command of each part of the program, with its outputs in $to, and set $codes to the exit codes
each()
{
    codes=''
    "$@" "$program" attend "$attention" -o "$to/attend.safetensors" >"$T/out" 2>"$T/err.1"
    codes="$codes $?"
    "$@" "$program" embed $model "$T/texts" -o "$to/embed.npz" >"$T/out" 2>"$T/err.2"
    codes="$codes $?"
    "$@" "$program" t5 generate "$t5" --tokens --text '5 9 2 4 4 7 1' --max-new-tokens 6 >"$to/t5.txt" 2>"$T/err.3"
    codes="$codes $?"
    "$@" "$program" explain >"$to/explain.txt" 2>"$T/err.4"
    codes="$codes $?"
    "$@" "$program" lab train "$T/train.lab" -o "$to/run" --threads 1 >"$T/out" 2>"$T/err.5"
    codes="$codes $?"
    "$@" "$program" verify fwd:f32:b1h2q70k70d16:t5:causal >"$T/out" 2>"$T/err.6"
    codes="$codes $?"
}

# alike WHAT COMMAND...: check that commands that are started by COMMAND... have the usual outputs
alike()
{
    what=$1 to=$T/other
    shift
    rm -rf "$to"
    mkdir "$to"
    command="$* relpos ..."
    each "$@"
    check "$what" ' 0 0 0 0 0 0' "$codes"
    [ "$codes" = ' 0 0 0 0 0 0' ] || head -n 3 "$T"/err.[1-6]
    for file in attend.safetensors embed.npz t5.txt explain.txt run/checkpoint.safetensors; do
        same "$what" "$T/usual/$file" "$to/$file"
    done
}
mkdir "$T/usual"
to=$T/usual
each
check 'usual commands' ' 0 0 0 0 0 0' "$codes"

# limits of a process
with() # with LIMIT COMMAND...: run a command with limits of ulimit
{
    limits=$1
    shift
    (eval "$limits" && exec "$@")
}
alike 'a small stack' with 'ulimit -s 128'
alike 'few open files' with 'ulimit -n 16'
alike 'no core dumps, no locked memory' with 'ulimit -c 0; ulimit -l 0'
if [ $sanitizer = 0 ]; then
    alike 'little memory' with 'ulimit -v 400000'
    for size in 20000 30000 40000 60000 100000; do # in KB; too little for some of them
        to=$T/other
        rm -rf "$to"
        mkdir "$to"
        command="ulimit -v $size"
        each with "ulimit -v $size"
        check 'success, an error, or the loader cannot start it' '' "$(echo "$codes" | tr -d '01 ' | sed 's/27//g')"
        for file in attend.safetensors embed.npz; do
            [ ! -e "$to/$file" ] || same 'a whole file or none' "$T/usual/$file" "$to/$file"
        done
    done
fi

# threads and processors
for threads in 1 2 3 7 16 64; do
    alike "$threads threads" env RELPOS_THREADS=$threads
done
alike 'one processor of several' taskset -c 0

# the environment, and signals that the parent ignores
alike 'no environment' env -i
alike 'no home' env -u HOME
alike 'TMPDIR that does not exist' env TMPDIR="$T/none"
ignoring() { (trap '' PIPE HUP && exec "$@"); }
alike 'signals ignored' ignoring
command='SIGPIPE ignored | head -c 1'
{ ignoring "$program" bias alibi --q 400 --k 400 -o - 2>"$T/err"; echo $? >"$T/code"; } | head -c 1 >/dev/null
check 'a broken pipe is an error' '1 1' "$(cat "$T/code") $(grep -c '^relpos: standard output: ' "$T/err")"
for locale in tr_TR.UTF-8 de_DE.UTF-8 ja_JP.EUC-JP; do
    if localedef --no-archive -i "${locale%.*}" -f "${locale#*.}" "$T/$locale" 2>/dev/null || [ -d "$T/$locale" ]; then
        alike "locale $locale" env LOCPATH="$T" LC_ALL=$locale
    else
        not_here="$not_here; locale $locale"
    fi
done

# a command that is stopped while it runs on a stack of its own
command='ulimit -s 128; relpos lab train, and SIGINT'
(ulimit -s 128 && exec "$program" lab train "$T/train.lab" -o "$T/stopped" --set steps=100000 --set log_every=1 --threads 1) >"$T/out" 2>"$T/err" &
pid=$!
while kill -0 "$pid" 2>/dev/null && [ ! -s "$T/stopped/log.jsonl" ]; do
    sleep 0.1
done
kill -INT "$pid"
wait "$pid"
check 'it stops and leaves a checkpoint' '1 yes' "$? $([ -s "$T/stopped/checkpoint.safetensors" ] && echo yes)"

# names of files
newline='a
b' bytes=$(printf 'caf\351 \377') spaces=' - $(x) "q" '
for name in "$newline" "$bytes" "$spaces" -dash 'ü 猫'; do
    command="a file called $name"
    mkdir "$T/in" "$T/in/$name"
    cp "$attention" "$T/in/$name/$name.safetensors"
    cp -r $model "$T/in/$name/model"
    (cd "$T/in/$name" && "$program" attend "./$name.safetensors" -o "./$name.out.safetensors") >"$T/out" 2>"$T/err"
    code=$?
    succeeded
    same 'the usual output' "$T/usual/attend.safetensors" "$T/in/$name/$name.out.safetensors"
    "$program" embed "$T/in/$name/model" "$T/texts" -o "$T/in/$name/x.npz" >"$T/out" 2>"$T/err"
    code=$?
    succeeded
    same 'the usual vectors' "$T/usual/embed.npz" "$T/in/$name/x.npz"
    "$program" attend "$T/in/$name/none.safetensors" -o "$T/made/x.npz" >"$T/out" 2>"$T/err"
    check 'one line of printable text' '1 1' "$? $(wc -l <"$T/err" | tr -d ' ')"
    rm -r "$T/in"
done
deep=$T/deep part=$(printf 'd%.0s' $(seq 200))
mkdir "$deep"
(
    cd "$deep" || exit 1
    for _ in $(seq 19); do
        mkdir "$part" && cd "$part" || exit 1
    done
    cp "$attention" in.safetensors
    "$program" attend in.safetensors -o out.safetensors
) >"$T/out" 2>"$T/err"
code=$? command='in a folder whose path has 4,000 characters'
succeeded
path=$deep$(printf "/$part%.0s" $(seq 19))
command="a path of ${#path} characters"
"$program" attend "$path/in.safetensors" -o "$path/again.safetensors" >"$T/out" 2>"$T/err"
code=$?
succeeded
same 'the usual output' "$T/usual/attend.safetensors" "$path/again.safetensors"
refused 1 'File name too long' attend "$path/$path/in.safetensors" -o "$T/made/x.npz"

# file systems. A namespace of mounts belongs to root alone, or to a user with a namespace of users.
mounted() # mounted 'COMMANDS OF MOUNTS' COMMAND...
{
    mounts=$1
    shift
    # shellcheck disable=SC2016
    unshare -rm sh -c "$mounts"' && exec "$@"' sh "$@"
}
if unshare -rm sh -c 'mount -t tmpfs none /mnt' 2>/dev/null; then
    [ $sanitizer = 1 ] || alike 'no /proc' mounted 'mount -t tmpfs none /proc'
    alike 'no /dev/shm' mounted 'mount -t tmpfs none /dev/shm -o ro'
    alike 'no /sys' mounted 'mount -t tmpfs none /sys'
    alike 'everything read-only except the folder of the outputs' mounted "mount --bind '$T' '$T' && mount -o remount,ro,bind /"
    mkdir "$T/small"
    command='an output on a full file system'
    mounted "mount -t tmpfs none -o size=16k '$T/small'" \
        sh -c '"$1" attend "$2" -o "$3/x.npz"; echo $? $(ls -A "$3")' sh "$program" "$attention" "$T/small" >"$T/out" 2>"$T/err"
    check 'an error and no file' '1' "$(cat "$T/out")"
    says "small/x.npz: .*No space left on device"
    command='an output on a read-only file system'
    mounted "mount -t tmpfs none -o ro '$T/small'" "$program" attend "$attention" -o "$T/small/x.npz" >"$T/out" 2>"$T/err"
    check 'an error' 1 $?
    says "small/x.npz: .*Read-only file system"
    mounted "mount -t tmpfs none -o ro '$T/small'" "$program" lab train "$T/train.lab" -o "$T/small/run/a" >"$T/out" 2>"$T/err"
    check 'an error' '1' $?
    says "small/run: cannot be created: Read-only file system"

    # make_group LINE FOLDER FILE NUMBERS...: a tree of control groups with these files, and this line of /proc/self/cgroup
    make_group()
    {
        rm -rf "$T/groups"
        mkdir -p "$T/groups/$2"
        echo "$1" >"$T/line"
        folder=$T/groups/$2
        shift 2
        while [ $# -gt 0 ]; do
            echo "$2" >"$folder/$1"
            shift 2
        done
    }
    # in_group COMMAND...: run a command in these groups
    in_group()
    {
        # shellcheck disable=SC2016
        mounted 'mount --bind "$1" /sys/fs/cgroup && mount --bind "$2" /proc/$$/cgroup && shift 2' "$T/groups" "$T/line" "$@" \
            >"$T/out" 2>"$T/err"
    }

    # quotas of control groups, of version 2 and 1, of the process and of a group around it
    # group WHAT THREADS LINE FOLDER FILE NUMBERS...: check the threads of a process with this line in /proc/self/cgroup and
    # these files
    group()
    {
        command="info, with $1" threads=$2
        shift 2
        make_group "$@"
        in_group "$program" info
        check 'threads' "$threads" "$(sed -n 's/^threads  *//p' "$T/out")"
    }
    all=$("$program" info | sed -n 's/^threads  *//p')
    group 'no limit' "$all" '0::/a/b' a/b cpu.max 'max 100000'
    group 'a limit of one processor' 1 '0::/a/b' a/b cpu.max '100000 100000'
    group 'half a processor' 1 '0::/a/b' a/b cpu.max '50000 100000'
    group 'a limit of an outer group' 1 '0::/a/b' a cpu.max '70000 100000'
    group 'a container' 1 '0::/' . cpu.max '70000 100000'
    group 'a container that sees the outer name' 1 '0::/docker/x' . cpu.max '70000 100000'
    group 'version 1' 1 '3:cpu,cpuacct:/a' cpu/a cpu.cfs_quota_us 90000 cpu.cfs_period_us 100000
    group 'version 1 without a limit' "$all" '3:cpu,cpuacct:/a' cpu/a cpu.cfs_quota_us -1 cpu.cfs_period_us 100000
    group 'another controller' "$all" '3:cpuset:/a' cpu/a cpu.cfs_quota_us 90000 cpu.cfs_period_us 100000
    group 'a much larger limit' "$all" '0::/a' a cpu.max '99900000 100000'
    group 'a damaged file' "$all" '0::/a' a cpu.max 'what'

    # limits of memory of the same groups: a training run that needs more is refused
    # memory REFUSED WHAT LINE FOLDER FILE NUMBERS...: check whether training is refused (1) with these files
    memory()
    {
        refused=$1 command="lab train, with $2"
        shift 2
        rm -rf "$T/run.groups"
        make_group "$@"
        in_group "$program" lab train "$T/train.lab" -o "$T/run.groups" --threads 1
        check 'the exit code' "$refused" $?
        [ "$refused" = 0 ] || says 'out of memory: .* GB are free'
    }
    memory 0 'no limit of memory' '0::/a/b' a/b memory.max max memory.current 4096
    memory 1 'a limit of memory' '0::/a/b' a/b memory.max 8192 memory.current 4096
    memory 1 'a limit that nothing uses yet' '0::/a/b' a/b memory.max 8192 memory.current 0
    memory 1 'a limit of memory of an outer group' '0::/a/b' a memory.max 8192 memory.current 4096
    memory 1 'a limit that is used up' '0::/a' a memory.max 900000000 memory.current 900000000
    memory 0 'a limit that is large enough' '0::/a' a memory.max 900000000 memory.current 4096
    memory 1 'a container' '0::/' . memory.max 8192 memory.current 4096
    memory 0 'a limit of another group' '0::/a' b memory.max 8192 memory.current 4096
    memory 1 'version 1' '5:memory:/a' memory/a memory.limit_in_bytes 8192 memory.usage_in_bytes 4096
    memory 0 'version 1 without a limit' '5:memory:/a' memory/a memory.limit_in_bytes 9223372036854771712 memory.usage_in_bytes 4096
    memory 0 'another controller' '5:cpuset:/a' memory/a memory.limit_in_bytes 8192 memory.usage_in_bytes 4096
    memory 0 'a damaged file' '0::/a' a memory.max what memory.current what
else
    not_here="$not_here; mounts of its own (no /proc, full and read-only file systems)"
fi

[ -z "$not_here" ] || echo "not on this machine: ${not_here#; }"
finish
