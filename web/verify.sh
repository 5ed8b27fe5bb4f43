#!/bin/sh
# verify.sh BUILD [PROBLEM...] -- run `relpos verify` on the WebAssembly builds under node, with the problems, by default with its own list.
# If a tool is missing, print its name and exit with 77. SPDX-License-Identifier: Apache-2.0
set -eu
build=$1
shift
for tool in clang-19 wasm-ld-19 node; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing (needed: clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32 nodejs)"; exit 77; }
done
echo 'int main(void) { return 0; }' | clang-19 --target=wasm32-wasi -x c - -o "$build/web/none.wasm" 2>/dev/null ||
    { echo "skipped: clang-19 cannot link WebAssembly (needed: wasi-libc libclang-rt-19-dev-wasm32)"; exit 77; }
cmake --build "$build" --target wasm_verify explorer >"$build/web/verify.log" || { cat "$build/web/verify.log"; exit 1; }
run=$(cd "$(dirname "$0")" && pwd)/run.mjs
node --no-warnings "$run" "$build/web/verify-simd128.wasm" "$@"
relaxed=--experimental-wasm-relaxed-simd # some versions of node need this option; later versions do not accept it
node --no-warnings $relaxed "$run" "$build/web/none.wasm" 2>/dev/null || relaxed=
# the two modules differ only in this instruction set
node --no-warnings $relaxed "$run" "$build/web/verify-relaxed.wasm" --isa wasm "$@" || [ $? = 77 ]
