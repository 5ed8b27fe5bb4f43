#!/bin/sh
# corpus.sh OUT.txt -- some 16 MB of English text from documentation that Debian packages: Vim's help, the manual pages of Linux,
# the topics of Python's help. Needs apt-get, dpkg-deb and python3; installs nothing. Prints versions and the hash of the text.
#
# Licences: Vim's help is under the Open Publication License, v1.0 or later, without options;
# the manual pages are under licences of their own, mostly the GPL and the Linux man-pages copyleft, as each begins
# (/usr/share/doc/manpages/copyright); Python's topics are under the PSF licence. The text is for training at home: what is
# published from it has to keep to them.
# SPDX-License-Identifier: Apache-2.0
set -eu
out=${1:?usage: lab/corpus.sh OUT.txt}
LC_ALL=C
export LC_ALL
case $out in /*) ;; *) out=$PWD/$out ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -q vim-runtime manpages manpages-dev libpython3.11-stdlib >log 2>&1 || {
    cat log >&2
    exit 1
}
for package in *.deb; do
    dpkg-deb -x "$package" files
    basename "$package" .deb
done
find files/usr/share/vim -path '*/doc/*.txt' | sort | xargs cat >text
# Manual pages without their markup: comments, requests, changes of font.
find files/usr/share/man/man* -name '*.gz' -type f | sort | while read -r page; do
    zcat "$page" | sed -e "/^['.]\\\\\"/d" -e "s/^\.[A-Za-z]* *//" -e 's/\\f[BIRP(CW]*//g' -e 's/\\-/-/g' -e "s/\\\\(aq/'/g" -e 's/\\&//g' -e '/^$/d'
    echo
done >>text
python3 - >>text <<'END'
import runpy
topics = runpy.run_path("files/usr/lib/python3.11/pydoc_data/topics.py")["topics"]
print("\n\n".join(topics[name] for name in sorted(topics)))
END
iconv -c -f UTF-8 -t UTF-8 text >"$out"
wc -c <"$out"
sha256sum <"$out"
