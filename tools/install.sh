#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# install.sh DIR PREFIX: install the build DIR below PREFIX (and DESTDIR, for packages), and see to it that the library
# is found: by ldconfig where that is ours to run, else by saying what to set.  DIR/installed lists the files where
# they stand, below DESTDIR where one is set, for uninstall.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --install "$1" --prefix "$(realpath -m "$2")"
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
printf 'install: to use it from there: export PATH=%q:"$PATH" LD_LIBRARY_PATH=%q PKG_CONFIG_PATH=%q\n' "$(realpath -m "$2")/bin" \
    "$lib" "$lib/pkgconfig"
