# copy_tree.sh -- sourced by other scripts. copy_tree FOLDER: copy all files of the working tree that git does not ignore to
# FOLDER. SPDX-License-Identifier: Apache-2.0
copy_tree() {
    git ls-files -co --exclude-standard | while read -r file; do [ ! -e "$file" ] || printf '%s\n' "$file"; done |
        tar cf - -T - | tar xf - -C "$1"
}
