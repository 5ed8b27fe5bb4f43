# need.sh -- sourced by ./demo, ./check and tools/*.sh. need PACKAGE...: print which of these Debian packages are missing, and install them.
# On a terminal, ask first.
# SPDX-License-Identifier: Apache-2.0
need() {
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if [ -t 0 ] && [ -t 1 ]; then
        printf 'Install these Debian packages:%s? [Y/n] ' "$missing"
        read -r answer || answer=n
        case $answer in
        '' | [Yy]*) ;;
        *)
            echo "Nothing was installed; to install them yourself, run  apt-get install$missing" >&2
            return 1
            ;;
        esac
    else
        echo "Installing Debian packages:$missing"
    fi
    sudo=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || {
            echo "Installing packages needs root; run  apt-get install$missing" >&2
            return 1
        }
        sudo=sudo
    fi
    log=$(mktemp)
    # $missing must be split into words
    # shellcheck disable=SC2086
    if $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >"$log" 2>&1 ||
        { $sudo apt-get update -q >"$log" 2>&1 &&
            $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >>"$log" 2>&1; }; then
        rm -f "$log"
    else
        tail -n 20 "$log" >&2
        rm -f "$log"
        echo "The installation failed; see the lines above for the reason." >&2
        return 1
    fi
}
