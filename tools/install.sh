#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# install.sh DIR PREFIX: install the build DIR below PREFIX (and DESTDIR, for packages), and see to it that the library
# is found: by ldconfig where that is ours to run, else by saying what to set.  DIR/installed lists the files where
# they stand, below DESTDIR where one is set, and DIR/installed-folders the folders that were not there before: both for
# uninstall.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=$(realpath -m "$2")
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT

# missing_folders DIR: those that the install needs and that are not there, with what they stand in.
missing_folders() {
    local folder
    DESTDIR=$staged/root cmake --install "$1" --prefix "$prefix" > "$staged/log"
    find "$staged/root" -type d | while IFS= read -r folder; do
        folder=${DESTDIR:-}${folder#"$staged/root"}
        while [ -n "$folder" ] && [ "$folder" != . ] && [ ! -d "$folder" ]; do
            printf '%s\n' "$folder"
            folder=$(dirname "$folder")
        done
    done
}

folders=$1/installed-folders
touch "$folders" # those of an earlier install are still ours
missing=$(missing_folders "$1")
printf '%s\n' "$missing" "$(cat "$folders")" | sed '/^$/d' | sort -u > "$folders.new"
mv "$folders.new" "$folders"
cmake --install "$1" --prefix "$prefix"
while IFS= read -r file || [ -n "$file" ]; do # cmake ends it without a newline
    printf '%s\n' "${DESTDIR:-}$file"
done < "$1/install_manifest.txt" > "$1/installed"
[ -z "${DESTDIR:-}" ] || exit 0 # the package's scripts run ldconfig where it ends up

lib=$(dirname "$(grep -m1 '/libpleat\.so$' "$1/installed")")
case $lib in
    /usr/local/lib | /usr/lib | /usr/local/lib/*-linux-gnu | /usr/lib/*-linux-gnu)
        if [ "$(id -u)" = 0 ]; then
            PATH=$PATH:/usr/sbin:/sbin ldconfig
            exit 0
        fi
        ;;
esac
printf 'install: to use it from there: export PATH=%q:"$PATH" LD_LIBRARY_PATH=%q PKG_CONFIG_PATH=%q\n' "$prefix/bin" \
    "$lib" "$lib/pkgconfig"
