#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# install.sh DIR PREFIX: install the build DIR below PREFIX (and DESTDIR, for packages), and see to it that the library
# is found: by ldconfig where that is ours to run, else by saying what to set.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --install "$1" --prefix "$2"
[ -z "${DESTDIR:-}" ] || exit 0 # the package's scripts run ldconfig where it ends up

lib=$(dirname "$(grep -m1 '/libpleat\.so$' "$1/install_manifest.txt")")
case $lib in
    /usr/local/lib | /usr/lib | /usr/local/lib/*-linux-gnu | /usr/lib/*-linux-gnu)
        if [ "$(id -u)" = 0 ]; then
            PATH=$PATH:/usr/sbin:/sbin ldconfig
            exit 0
        fi
        ;;
esac
echo "install: to use it from there: export LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig"
