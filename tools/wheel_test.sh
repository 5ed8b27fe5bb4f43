#!/bin/sh
# wheel_test.sh VENV [page] -- test the command relpos of an installed wheel; page: the wheel must have the page of relpos explore.
# Commands run in a folder without source files, so they must find the
# files of the wheel, and must report missing files. PATH is empty, so there is no compiler.
# SPDX-License-Identifier: Apache-2.0
set -eu
page=${2:-}
bin=$(cd "${1:?usage: wheel_test.sh VENV [page]}" && pwd)/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
cd "$work"
unset LD_LIBRARY_PATH PYTHONPATH RELPOS_PYTHON

runs() {
    PATH=$work/bin "$bin/relpos" "$@" >out 2>err || { echo "relpos $*: failed"; cat err; exit 1; }
}
# says PATTERN WORD...: check that the command succeeds and prints a line with the pattern
says() {
    pattern=$1
    shift
    runs "$@"
    grep -q -- "$pattern" out || { echo "relpos $*: no line with $pattern"; cat out; exit 1; }
}
# refuses PATTERN WORD...: check that the command exits with 1 and an error with the pattern
refuses() {
    pattern=$1
    shift
    code=0
    PATH=$work/bin "$bin/relpos" "$@" >out 2>err || code=$?
    [ "$code" = 1 ] && grep -q -- "$pattern" err || { echo "relpos $*: exit code $code, not 1 with a line with $pattern"; cat err; exit 1; }
}

version=$("$bin/python" -c 'import relpos; print(relpos.__version__)')
says "^relpos $version\$" --version
says "^relpos $version\$" info
says '^0  *0.0000  -0.2079  -0.3296  -0.4159  -0.4828$' bias log,lambda=0.3 --q 5 --k 5
says '^100 31$' bucket 100
says 'A = softmax' explain
says 'problems checked, 0 failed' verify fwd:f32:b1h2q9k9d8:t5
says 'GFLOP/s' bench fwd:f32:b1h1q64k64d16:none --seconds 0.01
"$bin/python" -c 'import numpy as np; x = np.ones((1, 1, 4, 8), np.float32); np.savez("in.npz", q=x, k=x, v=x)'
runs attend in.npz -o out.npz --bias alibi
"$bin/python" -c 'import numpy as np; assert (np.load("out.npz")["out"] == 1).all()'
says 'A.The,cat. = 0.3253' explain --input examples/data/cat.npz # the wheel includes this file, because docs/texts.md names it
runs attend examples/data/shaw.npz -o shaw.npz --relkey table=a_k,left=3,right=3 --relval table=a_v,left=3,right=3 --weights --summary
runs bias alibi --q 8 --k 8 -o alibi.png
head -c 4 alibi.png | grep -q PNG
says '"position": "rope"' lab sweep lab/length.lab --list
if [ "$page" = page ]; then
    says '/relpos/share/doc/relpos/relpos-explorer.html$' explore
else
    refuses 'relpos-explorer.html is not in this installation .* put build/web/relpos-explorer.html in /.*/relpos/share/doc/relpos' explore
fi
refuses 'x.jsonl: cannot be read' lab report x.jsonl # from lab/report, which the environment's Python runs, since PATH has none
refuses 'lab/model/vim.safetensors: cannot be opened\|libopenblas' explain --model lab/model/vim.safetensors --text word
[ "$("$bin/python" -m relpos bucket 5)" = '5 21' ]
for word in '' $(PATH=$work/bin "$bin/relpos" --help | sed -n 's/^  \([a-z0-9]*\)  .*/-\1/p'); do
    [ -s "$bin/../share/man/man1/relpos$word.1" ] || { echo "no page relpos$word.1; was scdoc missing when the wheel was built?"; exit 1; }
done
"$bin/python" -c 'import relpos; relpos.t5.T5, relpos.Encoder' || { echo "the wheel has no relpos.t5 or relpos.Encoder"; exit 1; }
refuses 'no-such-model' t5 info no-such-model
for file in bash-completion/completions/relpos zsh/site-functions/_relpos fish/vendor_completions.d/relpos.fish; do
    says . info --completion "$(expr "$file" : '\([a-z]*\)')"
    cmp "$bin/../share/$file" out
done
echo "the command of the wheel: all passed"
