#!/bin/sh
# explore.sh -- test relpos explore
#
#     tests/cli/explore.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

# Copies of the program with and without the page, and fake browsers that succeed or fail.
built=$program
mkdir -p "$T/tree/bin" "$T/tree/share/doc/relpos" "$T/browser"
cp "$program" "$T/tree/bin/relpos"
program=$T/tree/bin/relpos
unset DISPLAY WAYLAND_DISPLAY
refused 1 "explore: relpos-explorer.html is not in this installation .* put build/web/relpos-explorer.html in $(realpath "$T/tree/share/doc/relpos")" explore
packages=$(sed -n 's/^ *need \(clang-19 .*\)/\1/p' check)
build=$(realpath "$T/tree/bin")
touch "$build/CMakeCache.txt" # a build folder
refused 1 "is not built yet .run  apt install $packages && cmake '$build' && cmake --build '$build' --target explorer.\$" explore
rm "$build/CMakeCache.txt"
echo page >"$T/tree/share/doc/relpos/relpos-explorer.html"
page=$(realpath "$T/tree/share/doc/relpos/relpos-explorer.html")
prints "$page" explore
prints "$page" explore --path
refused 2 'the argument "now" is one too many' explore now
printf '#!/bin/sh\n[ "$1" = "%s" ] && echo >"%s/opened"\n' "$page" "$T" >"$T/browser/xdg-open"
chmod +x "$T/browser/xdg-open"
PATH=$T/browser:$PATH
prints "$page" explore # without a display
check 'nothing is opened without a display' '' "$(ls "$T/opened" 2>/dev/null)"
DISPLAY=:9
export DISPLAY
prints '' explore
check 'the page is opened' "$T/opened" "$(ls "$T/opened")"
printf '#!/bin/sh\nexit 3\n' >"$T/browser/xdg-open"
prints "$page" explore # with a browser that fails
unset DISPLAY
PATH=${PATH#"$T/browser:"}
program=$built

finish
