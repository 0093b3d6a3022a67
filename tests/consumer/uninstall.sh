#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# uninstall.sh DIR: what tools/install.sh puts below a prefix and below DESTDIR, tools/uninstall.sh removes, the folders that
# it made included, and nothing else; without a manifest it refuses.  DIR is a build.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
mkdir "$work/kept"
for record in installed installed-folders; do # the caller's own
    [ ! -f "$build/$record" ] || mv "$build/$record" "$work/kept"
done
restore() {
    rm -f "$build/installed" "$build/installed-folders"
    cp "$work/kept"/* "$build" 2> /dev/null
    rm -rf "$work"
}
trap restore EXIT
unset DESTDIR
. tests/consumer/try.bash

refuses() {
    ! tools/uninstall.sh "$build" > "$work/out" 2>&1 && grep -q 'nothing was installed' "$work/out"
}

prefix="$work/deep/a prefix"
installs() {
    tools/install.sh "$build" "$prefix" > "$work/install.log" && [ -x "$prefix/bin/pleat" ] &&
        [ -f "$prefix/include/pleat/pleat.h" ]
}

refuses_elsewhere() { ! tools/uninstall.sh "$build" "$work/elsewhere" 2> "$work/out" && grep -q 'stands elsewhere' "$work/out"; }

leaves_nothing() { tools/uninstall.sh "$build" && [ ! -e "$work/deep" ]; }

# The second install finds all folders there; they are ours all the same.
twice_leaves_nothing() { installs && installs && leaves_nothing; }

# A stranger's file beside ours stays, with its folder; so do empty folders that are not ours.
leaves_strangers() {
    mkdir -p "$prefix/lib/cmake"
    installs || return
    touch "$prefix/include/pleat/stranger.h"
    mkdir "$prefix/share/empty"
    tools/uninstall.sh "$build" && [ "$(find "$prefix" ! -type d)" = "$prefix/include/pleat/stranger.h" ] &&
        [ "$(cd "$prefix" && find . -type d | sort | tr '\n' ' ')" = \
            ". ./include ./include/pleat ./lib ./lib/cmake ./share ./share/empty " ]
}

below_destdir() {
    export DESTDIR=$work/root
    tools/install.sh "$build" /usr > "$work/install.log" && [ -x "$DESTDIR/usr/bin/pleat" ] || return
    unset DESTDIR # what was installed below it is removed there, and nothing of the system's
    tools/uninstall.sh "$build" && [ ! -e "$work/root" ]
}

try no-manifest refuses
try install installs
try elsewhere refuses_elsewhere
try nothing-left leaves_nothing
try again twice_leaves_nothing
try strangers-stay leaves_strangers
try twice refuses
try destdir below_destdir
echo "$passed passed, $failed failed"
[ $failed = 0 ]
