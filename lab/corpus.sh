#!/bin/sh
# corpus.sh OUT.txt -- create about 16 MB of English text from Debian packages: Vim's help, the manual pages of Linux, and the topics of
# Python's help. The folder OUT gets the same documents, split into training, selection and report (lab/split.py). Needs apt-get, dpkg-deb and
# python3; installs nothing. Prints versions and the hash of the text. Other releases of Debian give another text; the script compares it
# with lab/corpus.sums and warns which parts differ from the text used for lab/results.
#
# Licences: Vim's help is under the Open Publication License, v1.0 or later, without options. Each manual page states its licence, mostly the
# GPL or the Linux man-pages copyleft (/usr/share/doc/manpages/copyright). Python's topics are under the PSF licence. The text is meant for
# training on your machine; anything you publish from it must comply with these licences.
# SPDX-License-Identifier: Apache-2.0
set -eu
out=${1:?usage: lab/corpus.sh OUT.txt}
LC_ALL=C
export LC_ALL
case $out in /*) ;; *) out=$PWD/$out ;; esac
mkdir -p "$(dirname "$out")"
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
apt-get download -q vim-runtime manpages manpages-dev "libpython$python-stdlib" >log 2>&1 || {
    cat log >&2
    exit 1
}
for package in *.deb; do
    dpkg-deb -x "$package" files
    basename "$package" .deb
done
mkdir -p documents/vim documents/manual documents/topics
find files/usr/share/vim -path '*/doc/*.txt' | sort | while read -r help; do
    cat "$help"
    cp "$help" "documents/vim/$(basename "$help")"
done >vim
# Remove the markup of manual pages: comments, requests and font changes.
find files/usr/share/man/man* -name '*.gz' -type f | sort | while read -r page; do
    zcat "$page" | sed -e "/^['.]\\\\\"/d" -e "s/^\.[A-Za-z]* *//" -e 's/\\f[BIRP(CW]*//g' -e 's/\\-/-/g' -e "s/\\\\(aq/'/g" -e 's/\\&//g' -e '/^$/d' |
        tee "documents/manual/$(basename "$page" .gz)"
    echo
done >manual
python3 - >topics <<'END'
import pathlib
import runpy
import sys
name = "files/usr/lib/python%d.%d/pydoc_data/topics.py" % sys.version_info[:2]
topics = runpy.run_path(name)["topics"]
print("\n\n".join(topics[name] for name in sorted(topics)))
for name, text in topics.items():
    pathlib.Path("documents/topics", name).write_text(text, encoding="utf-8")
END
cat vim manual topics | iconv -c -f UTF-8 -t UTF-8 >"$out"
wc -c <"$out"
sha256sum <"$out"
python3 "$here/split.py" documents split
sha256sum -c --quiet "$here/corpus.sums" >differ 2>log || {
    echo "corpus.sh: the text differs from that of lab/results in $(sed -n 's/: FAILED$//p' differ | tr '\n' ' ')because the packages have other versions; perplexities will differ too" >&2
}
mkdir -p "${out%.txt}"
cp split/* "${out%.txt}"
