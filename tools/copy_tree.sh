# copy_tree.sh -- `. tools/copy_tree.sh`: copy_tree FOLDER copies the tracked and unignored files of the working tree to FOLDER.
# SPDX-License-Identifier: Apache-2.0
copy_tree() {
    git ls-files -co --exclude-standard | while read -r file; do [ ! -e "$file" ] || printf '%s\n' "$file"; done |
        tar cf - -T - | tar xf - -C "$1"
}
