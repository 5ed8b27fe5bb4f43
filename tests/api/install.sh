#!/bin/sh
# install.sh BUILD -- install into a prefix and build the examples against it, through CMake and through pkg-config.
# SPDX-License-Identifier: Apache-2.0
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

echo "what is exported is what the headers declare"
nm -D --defined-only "$work"/prefix/lib*/librelpos.so "$work"/prefix/lib/*/librelpos.so 2>/dev/null | awk '$2 ~ /[TDBR]/ {print $3}' | sort >"$work/exported"
grep -ohE '\brp_[a-z0-9_]+ *\(' include/relpos/*.h | tr -d ' (' | sort -u >"$work/declared"
if grep -vxFf "$work/declared" "$work/exported"; then
    echo "the names above are exported but not declared"
    exit 1
fi
test "$(wc -l <"$work/exported")" -gt 20

echo "CMake package"
mkdir "$work/user"
cp examples/01_attend.c "$work/user/"
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(relpos 0.2 REQUIRED)
add_executable(attend 01_attend.c)
target_link_libraries(attend PRIVATE relpos::relpos)
END
cmake -G Ninja -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1 &&
    cmake --build "$work/user/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/user/build/attend"

echo "pkg-config"
pc=$(dirname "$(find "$work/prefix" -name relpos.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos)
for example in examples/0*.c; do
    # shellcheck disable=SC2086
    "$cc" "$example" -o "$work/example" $flags -lm
    LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos.so)") "$work/example" >"$work/${example##*/}.txt"
    cat "$work/${example##*/}.txt"
done
grep -q '^absolute positions  [1-9]' "$work/04_shift.c.txt"
grep -qx 'relative positions  0\.00' "$work/04_shift.c.txt"

echo "layers"
for name in s0 s1 s2 s3 s4; do
    # shellcheck disable=SC2086
    "$cc" "examples/$name.c" -std=c99 -Wall -Wextra -Wpedantic -Werror -o "$work/$name" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos_layers relpos) -lm
done
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos_layers.so)") python3 tests/api/texts.py "$work"
if nm -D --defined-only "$(find "$work/prefix" -name librelpos_layers.so)" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -vxFf "$work/declared"; then
    echo "the names above are exported by librelpos_layers"
    exit 1
fi

echo "models of the T5 family"
cat >"$work/t5.c" <<'END'
#include <relpos/t5.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    rp_t5 *model;
    if (argc < 2 || rp_t5_open(&model, argv[1], NULL) != RP_OK)
        return puts(rp_t5_last_error()), 1;
    const int32_t tokens[] = {5, 9, 1};
    const rp_t5_tokens source = {tokens, 3};
    float hidden[3 * 16];
    const rp_status status = rp_t5_encode(model, 1, &source, hidden, NULL, NULL);
    rp_t5_close(model);
    return status != RP_OK;
}
END
# shellcheck disable=SC2086
"$cc" "$work/t5.c" -o "$work/t5" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos_t5)
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos_t5.so)") "$work/t5" tests/t5/data/v11
# shellcheck disable=SC2086
"$cc" examples/t5_generate.c -o "$work/generate" -Wall -Wextra -Werror $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos_t5)
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos_t5.so)") "$work/generate" tests/t5/data/byt5 'Good morning.' >"$work/log"
tail -n 1 "$work/log" | grep -qE '^[0-9]+ tokens, log-probability -[0-9.]+$'
if nm -D --defined-only "$(find "$work/prefix" -name librelpos_t5.so)" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v '^rp_t5_'; then
    echo "the names above are exported by librelpos_t5"
    exit 1
fi

echo "needs libc and libm alone"
if objdump -p "$(find "$work/prefix" -name librelpos.so)" | awk '/NEEDED/ {print $2}' |
    grep -vE '^(libc|libm|libpthread|ld-linux[-a-z0-9]*)\.so'; then
    echo "the library above is needed too"
    exit 1
fi

echo "the model and its card"
diff -r lab/model "$work/prefix/share/doc/relpos/lab/model"

echo "SONAME"
objdump -p "$(find "$work/prefix" -name librelpos.so)" | grep SONAME | grep -q 'librelpos\.so\.0\.2$'

echo "the program runs from wherever the prefix is moved to"
mv "$work/prefix" "$work/moved"
env -u LD_LIBRARY_PATH "$work/moved/bin/relpos" bucket 5 >"$work/log" || { cat "$work/log"; exit 1; }

echo "and finds the laboratory's files in every folder"
cd "$work/user"
"$work/moved/bin/relpos" lab sweep lab/length.lab --list >"$work/log" || { cat "$work/log"; exit 1; }
grep -q '"position": "rope"' "$work/log"
if "$work/moved/bin/relpos" lab sweep lab/../lab/length.lab --list >"$work/log" 2>&1; then
    echo "a path with .. was taken for one of them"
    exit 1
fi
