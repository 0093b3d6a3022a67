#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# format.sh [--check]: clang-format over every C source, with .clang-format; --check changes nothing and fails if a file
# would change.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v clang-format > /dev/null; then
    echo "format: clang-format is missing: Debian package clang-format" >&2
    exit 1
fi
mode=(-i)
if [ "${1:-}" = --check ]; then
    mode=(--dry-run -Werror)
fi
find $(ls -d include src cli tests bench examples 2> /dev/null) \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 clang-format "${mode[@]}"
