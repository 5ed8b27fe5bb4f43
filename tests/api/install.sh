#!/bin/sh
# install.sh BUILD -- install into a prefix and build the examples against it, through CMake and through pkg-config.
# SPDX-License-Identifier: Apache-2.0
set -eu
build=$(cd "$1" && pwd)
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

echo "CMake package, with a component for each library above relpos"
libraries=$(dirname "$(find "$work/prefix" -name librelpos.so)")
parts='t5 encoder layers'
[ ! -e "$libraries/librelpos_mpi.so" ] || parts='t5 encoder layers mpi'
mkdir "$work/user"
cat >"$work/mpi.c" <<'END'
#include <mpi.h>
#include <relpos/mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    const rp_desc desc = rp_desc_init(1, 1, 1024, 1024, 16);
    rp_mpi_plan *plan;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    const rp_status status = rp_mpi_plan_create(&plan, MPI_COMM_WORLD, &desc);
    puts(status == RP_OK ? rp_version() : rp_mpi_last_error());
    rp_mpi_plan_destroy(plan);
    MPI_Finalize();
    return status != RP_OK;
}
END
cp examples/01_attend.c examples/t5_generate.c examples/search.c examples/s0.c "$work/mpi.c" "$work/user/"
version=$(sed -n 's/.*RP_VERSION_STRING "\([0-9]*\.[0-9]*\).*/\1/p' include/relpos/relpos.h)
# package LANGUAGE COMPONENT...: configure a project that needs these components, with the installation in $prefix
prefix=$work/prefix
package()
{
    language=$1
    shift
    cat >"$work/user/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES $language)
find_package(relpos $version REQUIRED${*:+ COMPONENTS }$*)
foreach(program 01_attend,relpos t5_generate,t5 search,encoder s0,layers mpi,mpi)
  string(REGEX MATCH "(.*),(.*)" program \${program})
  if(TARGET relpos::\${CMAKE_MATCH_2})
    add_executable(\${CMAKE_MATCH_1} \${CMAKE_MATCH_1}.c)
    target_link_libraries(\${CMAKE_MATCH_1} PRIVATE relpos::\${CMAKE_MATCH_2})
  endif()
endforeach()
END
    rm -rf "$work/user/build"
    cmake -G Ninja -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1
}
# no_package REASON LANGUAGE COMPONENT...: the same must fail for this reason
no_package()
{
    reason=$1
    shift
    if package "$@" || ! tr -s ' \n' ' ' <"$work/log" | grep -q "$reason"; then
        echo "find_package with $*: expected an error with \"$reason\""
        cat "$work/log"
        exit 1
    fi
}
package C && cmake --build "$work/user/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/user/build/01_attend"
# shellcheck disable=SC2086
package C $parts && cmake --build "$work/user/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for part in $parts; do
    program=$(echo "$part" | sed 's/t5/t5_generate/; s/layers/s0/; s/encoder/search/')
    [ -x "$work/user/build/$program" ] || { echo "the component $part gave no target relpos::$part"; exit 1; }
done
[ ! -x "$work/user/build/mpi" ] || mv "$work/user/build/mpi" "$work/user.mpi"
cp -r "$work/prefix" "$work/bare"
rm "$work"/bare/lib*/cmake/relpos/relpos_*.cmake || rm "$work"/bare/lib/*/cmake/relpos/relpos_*.cmake
prefix=$work/bare
for part in t5 encoder layers mpi; do
    no_package "built without the component $part; build relpos again, with " C $part
done
package C && cmake --build "$work/user/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
prefix=$work/prefix
no_package 'relpos has no component T5; choose from t5, encoder, layers and mpi' C T5
case $parts in *mpi)
    no_package 'component mpi needs MPI for C, which CMake did not find' CXX mpi ;;
esac

echo "the lines of the documentation, with nothing but HOME and PATH"
mkdir "$work/clone" "$work/home"
ln -s "$build" "$work/clone/build"
ln -s "$PWD/examples" "$work/clone/examples"
for page in docs/c.md docs/texts/*.md; do # c.md installs what the others use
    awk '/^```sh$/ {block = ""; inside = 1; next} /^```$/ {if (inside && block ~ /pkg-config/) printf "%s", block; inside = 0} inside {block = block $0 "\n"}' "$page"
done >"$work/lines"
(cd "$work/clone" && env -i HOME="$work/home" PATH="$PATH" sh -eu "$work/lines" >"$work/log" 2>&1) || { cat "$work/lines" "$work/log"; exit 1; }
grep -q '^head 0, slope 0.5 ' "$work/log"
grep -o -- '-o [a-z0-9_]*' "$work/lines" | sort -u | cut -c 4- >"$work/programs"
test "$(wc -l <"$work/programs")" = 6
while read -r program; do test -x "$work/clone/$program"; done <"$work/programs"

echo "the lines for CMake: relpos within another project, by FetchContent and by add_subdirectory"
mkdir "$work/within"
ln -s "$PWD" "$work/within/relpos"
awk '/^```cmake$/ {inside = 1; next} /^```$/ {inside = 0} inside' docs/c.md >"$work/lines"
sed 's/^FetchContent_MakeAvailable.*/add_subdirectory(relpos)/; /FetchContent/d' "$work/lines" >"$work/lines_add"
for lines in lines lines_add; do
    {
        printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(user LANGUAGES C)' 'add_executable(program relpos/examples/05_grouped.c)'
        cat "$work/$lines"
    } >"$work/within/CMakeLists.txt"
    cmake -G Ninja -S "$work/within" -B "$work/within/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Debug >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    target=program # with add_subdirectory, only compile the program: the library is the same
    [ $lines = lines ] || target=CMakeFiles/program.dir/relpos/examples/05_grouped.c.o
    cmake --build "$work/within/build" --target "$target" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    ninja -C "$work/within/build" -t commands program | grep -q -- '-o program .*librelpos\.' # it is linked with the library
    [ $lines != lines ] || "$work/within/build/program"
done

echo "pkg-config"
pc=$(dirname "$(find "$work/prefix" -name relpos.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos)
for example in examples/0*.c; do
    # shellcheck disable=SC2086
    "$cc" -O2 -Wall -Wextra -Wpedantic -Werror "$example" -o "$work/example" $flags -lm
    LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos.so)") "$work/example" >"$work/${example##*/}.txt"
    cat "$work/${example##*/}.txt"
done
grep -q '^absolute positions  [1-9]' "$work/04_shift.c.txt"
grep -qx 'relative positions  0\.00' "$work/04_shift.c.txt"
test "$(cut -d' ' -f 8 "$work/06_by_offset.c.txt" | tr '\n' ' ')" = '50.0 55.0 60.0 65.0 '

echo "layers"
for name in s0 s1 s2 s3 s4; do
    # shellcheck disable=SC2086
    "$cc" "examples/$name.c" -O2 -std=c99 -Wall -Wextra -Wpedantic -Werror -o "$work/$name" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos_layers relpos) -lm
done
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos_layers.so)") python3 tests/api/texts.py "$work"
if nm -D --defined-only "$(find "$work/prefix" -name librelpos_layers.so)" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -vxFf "$work/declared"; then
    echo "the names above are exported by librelpos_layers"
    exit 1
fi

case $parts in *mpi)
    echo "several processes"
    # shellcheck disable=SC2046
    "$cc" "$work/mpi.c" -o "$work/mpi" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos_mpi)
    for program in "$work/user.mpi" "$work/mpi"; do
        LD_LIBRARY_PATH=$libraries OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q -n 2 --oversubscribe "$program" >"$work/log"
        test "$(grep -cF "$version." "$work/log")" = 2
    done ;;
esac

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
# shellcheck disable=SC2086
"$cc" examples/search.c -o "$work/search" -Wall -Wextra -Werror $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs relpos_encoder)
printf 'Stocks fell.\nThe cat sleeps.\nOn Monday\n' >"$work/notes"
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name librelpos_encoder.so)") "$work/search" tests/encoder/texts/search "$work/notes" 'The cat sleeps.' >"$work/log"
head -n 1 "$work/log" | grep -q '^1.0000  The cat sleeps.$'
if nm -D --defined-only "$(find "$work/prefix" -name librelpos_encoder.so)" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v '^rp_encoder_'; then
    echo "the names above are exported by librelpos_encoder"
    exit 1
fi
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

echo "completion for shells"
for file in bash-completion/completions/relpos zsh/site-functions/_relpos fish/vendor_completions.d/relpos.fish; do
    "$work/prefix/bin/relpos" info --completion "$(expr "$file" : '\([a-z]*\)')" | cmp - "$work/prefix/share/$file"
done

echo "SONAME"
objdump -p "$(find "$work/prefix" -name librelpos.so)" | grep SONAME | grep -q "librelpos\.so\.$version\$"

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
