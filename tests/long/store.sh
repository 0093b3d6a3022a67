# SPDX-License-Identifier: MIT
#
# store.sh: the store's faults in full: 500 kills, 10,000 flipped bytes, every length of a file.
tools/build.sh build -q -t check_store_faults &&
    STORE_KILLS=500 STORE_FLIPS=10000 STORE_CUTS=1 STORE_INDEXES=300 "$ROOT/build/tests/check_store_faults"
