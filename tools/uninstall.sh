#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# uninstall.sh DIR [PREFIX]: remove what install.sh installed last from the build DIR, file by file of the manifest
# DIR/installed, and the folders that install.sh made and that are empty then.  Files that are gone already are no failure;
# without a manifest it refuses and removes nothing, and so it does where PREFIX is named and is another.
set -euo pipefail
cd "$(dirname "$0")/.."

manifest=$1/installed
if [ ! -f "$manifest" ]; then
    echo "uninstall: there is no $manifest: nothing was installed from $1, or it was made clean since" >&2
    exit 1
fi
if [ $# -gt 1 ] && ! grep -qF -- "$(realpath -m "$2")/" "$manifest"; then
    echo "uninstall: what was installed last stands elsewhere: $(head -n 1 "$manifest")" >&2
    exit 1
fi
n=0
while IFS= read -r file; do
    [ -L "$file" ] || [ -e "$file" ] || continue
    rm -- "$file"
    n=$((n + 1))
done < "$manifest"
if [ -f "$1/installed-folders" ]; then
    LC_ALL=C sort -r "$1/installed-folders" | while IFS= read -r folder; do # what stands in another comes first
        rmdir --ignore-fail-on-non-empty -- "$folder" 2> /dev/null || true
    done
fi
if [ "$(id -u)" = 0 ] && grep -qE '^/usr/(local/)?lib/.*libpleat\.so$' "$manifest"; then
    PATH=$PATH:/usr/sbin:/sbin ldconfig
fi
rm -f "$manifest" "$1/installed-folders"
echo "uninstall: removed $n files"
