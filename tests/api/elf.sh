#!/bin/sh
# elf.sh -- test the built files: each library exports the functions of the public headers and nothing else, and every file has the flags
# of packaging/cmake/hardening.cmake
#
#     tests/api/elf.sh FILE...        libraries, programs and modules of Python
#
# Needs readelf, nm and objdump. SPDX-License-Identifier: Apache-2.0
set -u
LC_ALL=C
export LC_ALL
failed=0 checks=0

# check FILE WHAT EXPECTED FOUND
check()
{
    checks=$((checks + 1))
    [ "$3" = "$4" ] && return
    failed=$((failed + 1))
    printf 'FAILED %s: %s\n  expected  %s\n  found     %s\n' "$1" "$2" "$3" "$4"
}

# yes PATTERN TEXT: print yes if a line of the text matches
yes()
{
    if printf '%s\n' "$2" | grep -qE -e "$1"; then echo yes; else echo no; fi
}

machine=$(uname -m) list=$(mktemp)
trap 'rm -f "$list"' EXIT
for file; do
    headers=$(readelf -lW "$file") dynamic=$(readelf -dW "$file") symbols=$(nm -D "$file")
    program=$(yes 'INTERP' "$headers")
    case $file in *_core*) public=PyInit__core ;; *) public='rp_[a-z0-9_]+' ;; esac
    [ "$program" = yes ] || check "$file" 'other symbols' '' "$(nm -D --defined-only "$file" | grep -vE " $public(\.resolver)?$")"
    [ "$program" = yes ] || check "$file" 'public symbols' yes "$(yes " T $public$" "$symbols")"
    check "$file" 'read-only relocations (RELRO)' yes "$(yes 'GNU_RELRO' "$headers")"
    check "$file" 'functions are bound at the start' yes "$(yes '\((BIND_NOW|FLAGS|FLAGS_1)\).*(BIND_NOW|NOW)|\(BIND_NOW\)' "$dynamic")"
    check "$file" 'the stack is not executable' yes "$(yes 'GNU_STACK.* RW ' "$headers")"
    check "$file" 'position-independent' yes "$(yes 'Type:.* DYN ' "$(readelf -hW "$file")")"
    # in a wheel, the program consists of main, which has no array
    [ "$program" = yes ] && [ "$(printf '%s\n' "$symbols" | grep -c ' U ')" -lt 20 ] && continue
    check "$file" 'stack protector' yes "$(yes ' __stack_chk_(fail|guard)' "$symbols")"
    check "$file" 'FORTIFY' yes "$(yes ' __[a-z_]+_chk(@|$)' "$(printf '%s\n' "$symbols" | grep -v __stack_chk)")"
    case $machine in x86_64 | i?86)
        [ "$program" = yes ] && continue
        nm -D --defined-only "$file" | sed -nE "s/^(.*) T ($public)(@.*)?$/\1 \2/p" | head -n 3 >"$list"
        while read -r address name; do
            code=$(objdump -d --start-address="0x$address" --stop-address=$((0x$address + 4)) "$file")
            check "$file" "$name begins with endbr (CET)" yes "$(yes 'endbr(64|32)' "$code")"
        done <"$list" ;;
    esac
done
echo "$checks checks, $failed failed"
[ $failed = 0 ]
