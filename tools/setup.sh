#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# setup.sh FOR...: install the Debian packages that are missing for each FOR:
#
#   run     build the command and the libraries
#   test    what `make test` needs
#   fuzz    clang, for the jobs clang and fuzz
#   arm     the job arm on amd64: a compiler and an emulator of 64-bit Arm, and two libraries of that architecture, for
#           which dpkg is told of arm64.  No other word changes more of the system than its packages
#   portable  musl, clang and headers of Windows, for the job portable
#
# Says in one line what it installs; when nothing is missing it is silent and touches no network.  When it cannot
# install, it names the packages and fails.  Elsewhere than on Debian it only looks whether the tools are there.
set -euo pipefail
. "$(dirname "$0")/progress.bash"

usage() {
    echo "usage: tools/setup.sh run|test|fuzz|arm|portable..." >&2
    exit 2
}

packages=""
need_arm64=0
[ $# -gt 0 ] || usage
for what in "$@"; do
    packages+=" gcc libc6-dev cmake ninja-build libdnnl-dev libpcre2-dev libjansson-dev libxxhash-dev libzstd-dev"
    packages+=" libcurl4-openssl-dev libssl-dev libedit-dev libevent-dev libsqlite3-dev libhiredis-dev libzmq3-dev libmsgpack-dev"
    case $what in
        run) ;;
        test) packages+=" g++ binutils pkg-config python3 clang-format redis-server" ;;
        fuzz) packages+=" clang libclang-rt-dev llvm" ;;
        arm)
            if [ "$(uname -m)" = x86_64 ]; then
                packages+=" gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libpcre2-8-0:arm64 libjansson4:arm64"
                need_arm64=1
            fi
            ;;
        portable) packages+=" musl-tools clang mingw-w64-x86-64-dev" ;;
        *) usage ;;
    esac
done
packages=$(tr ' ' '\n' <<< "$packages" | awk 'NF && !seen[$0]++' | tr '\n' ' ')

# The tools and headers that the packages stand for, for systems without dpkg.
elsewhere() {
    local tool header missing=""
    for tool in cc cmake; do
        command -v "$tool" > /dev/null || missing+=" $tool"
    done
    for header in pcre2.h jansson.h xxhash.h; do
        echo "#include <$header>" | cc -DPCRE2_CODE_UNIT_WIDTH=8 -E -x c - > /dev/null 2>&1 || missing+=" $header"
    done
    [ -n "$missing" ] || return 0
    echo "setup: this is not Debian, so nothing was installed; missing:$missing" >&2
    echo "setup: on Debian 12 the packages are: $packages" >&2
    exit 1
}

is_installed() {
    case $(dpkg-query -W -f '${db:Status-Status}\n' "$1" 2> /dev/null) in
        installed*) return 0 ;;
    esac
    # pkgconf stands in for pkg-config, and any clang-format for Debian's.
    case $1 in
        pkg-config | clang-format) command -v "$1" > /dev/null ;;
        *) return 1 ;;
    esac
}

# Those of the packages that are not installed, each with a blank in front.
missing_packages() {
    local package
    for package in $packages; do
        is_installed "$package" || printf ' %s' "$package"
    done
}

# Sets as_root, or fails where there is no way to become root.
become_root() {
    as_root=""
    [ "$(id -u)" != 0 ] || return 0
    as_root="sudo"
    command -v sudo > /dev/null && sudo true # asks for the password here, not behind the progress line
}

# install PACKAGES: their list is unquoted words.
install() {
    $as_root apt-get update &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $1
}

command -v dpkg-query > /dev/null && command -v apt-get > /dev/null || {
    elsewhere
    exit 0
}
missing=$(missing_packages)
[ -n "$missing" ] || exit 0
if ! become_root; then
    echo "setup: missing:$missing" >&2
    echo "setup: not root and no sudo here; as root:  apt-get update && apt-get install$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
[ $need_arm64 = 0 ] || $as_root dpkg --add-architecture arm64
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! with_progress "setup: apt-get" "$log" install "$missing"; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get failed; needed:$missing" >&2
    exit 1
fi
