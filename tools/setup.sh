#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# setup.sh run|test|fuzz: install the Debian packages that building, testing or fuzzing needs and that are missing.
# Says in one line what it installs; when nothing is missing it is silent and touches no network.  When it cannot
# install, it names the packages and fails.  Elsewhere than on Debian it only looks whether the tools are there.
#
# Testing on amd64 also asks for a compiler and an emulator of 64-bit Arm and two libraries of that architecture, which
# dpkg is told of.  Without them the job `arm` of tools/test.sh is skipped, so not getting them is no failure.
set -euo pipefail

packages="gcc g++ libc6-dev cmake ninja-build libdnnl-dev libpcre2-dev libjansson-dev libxxhash-dev libzstd-dev"
cross=""
case ${1:-} in
    run) ;;
    test)
        packages+=" binutils pkg-config python3 clang-format"
        [ "$(dpkg --print-architecture 2> /dev/null)" != amd64 ] ||
            cross="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libpcre2-8-0:arm64 libjansson4:arm64"
        ;;
    fuzz) packages+=" clang libclang-rt-14-dev llvm" ;;
    *)
        echo "usage: tools/setup.sh run|test|fuzz" >&2
        exit 2
        ;;
esac

# The tools and headers that the packages stand for, for systems without dpkg.
elsewhere() {
    local tool header missing=""
    for tool in cc c++ cmake; do
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

command -v dpkg-query > /dev/null && command -v apt-get > /dev/null || {
    elsewhere
    exit 0
}

# missing_of PACKAGE...: those that are not installed, each with a blank in front.
missing_of() {
    local package
    for package in "$@"; do
        is_installed "$package" || printf ' %s' "$package"
    done
}

# Sets as_root, or fails where there is no way to become root.
become_root() {
    as_root=""
    [ "$(id -u)" != 0 ] || return 0
    as_root="sudo"
    command -v sudo > /dev/null
}

# install PACKAGES: their list is unquoted words.
install() {
    echo "setup: installing$1"
    case $1 in
        *:arm64*) $as_root dpkg --add-architecture arm64 || return ;;
    esac
    {
        $as_root apt-get update &&
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $1
    } > "$log" 2>&1
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

missing=$(missing_of $packages)
if [ -n "$missing" ]; then
    if ! become_root; then
        echo "setup: missing:$missing" >&2
        echo "setup: not root and no sudo here; as root:  apt-get update && apt-get install$missing" >&2
        exit 1
    fi
    if ! install "$missing"; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get failed; needed:$missing" >&2
        exit 1
    fi
fi

missing=$(missing_of $cross)
if [ -n "$missing" ] && ! { become_root && as_root+=${as_root:+ -n} && install "$missing"; }; then # sudo may not ask
    echo "setup: could not install$missing: the job arm of tools/test.sh will be skipped" >&2
fi
