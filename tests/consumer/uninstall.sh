#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# uninstall.sh DIR: what tools/install.sh puts below a prefix and below DESTDIR, tools/uninstall.sh removes, and nothing
# else; without a manifest it refuses.  DIR is a build.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
[ ! -f "$build/installed" ] || cp "$build/installed" "$work/kept" # the caller's own
restore() {
    rm -f "$build/installed"
    [ ! -f "$work/kept" ] || cp "$work/kept" "$build/installed"
    rm -rf "$work"
}
trap restore EXIT
unset DESTDIR
passed=0 failed=0

# try NAME COMMAND...: one check.
try() {
    local name=$1
    shift
    if "$@"; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        failed=$((failed + 1))
    fi
}

refuses() {
    ! tools/uninstall.sh "$build" > "$work/out" 2>&1 && grep -q 'nothing was installed' "$work/out"
}

without_manifest() { rm -f "$build/installed" && refuses; }

prefix="$work/a prefix"
installs() {
    tools/install.sh "$build" "$prefix" > "$work/install.log" && [ -x "$prefix/bin/pleat" ] &&
        [ -f "$prefix/include/pleat/pleat.h" ]
}

refuses_elsewhere() { ! tools/uninstall.sh "$build" "$work/elsewhere" 2> "$work/out" && grep -q 'stands elsewhere' "$work/out"; }

# A stranger's file beside ours stays, with its folder.
leaves_strangers() {
    touch "$prefix/include/pleat/stranger.h"
    tools/uninstall.sh "$build" && [ "$(find "$prefix" ! -type d)" = "$prefix/include/pleat/stranger.h" ] &&
        [ ! -e "$prefix/lib/cmake/Pleat" ]
}

below_destdir() {
    export DESTDIR=$work/root
    tools/install.sh "$build" /usr > "$work/install.log" && [ -x "$DESTDIR/usr/bin/pleat" ] || return
    unset DESTDIR # what was installed below it is removed there, and nothing of the system's
    tools/uninstall.sh "$build" && [ -z "$(find "$work/root" ! -type d)" ]
}

try no-manifest without_manifest
try install installs
try elsewhere refuses_elsewhere
try strangers-stay leaves_strangers
try twice refuses
try destdir below_destdir
echo "$passed passed, $failed failed"
[ $failed = 0 ]
