# SPDX-License-Identifier: MIT
#
# The rules of src/cache: kinds of lanes are asked by their rows, files call in one direction, few take pages.

# Outside of src/cache/keep nobody looks at what a kind has derived, nor at a flag that would say the kind; and no policy
# or compressor is named at all: a policy is a file and a row in src/policy.
check_cache_kinds() {
    grep -nE '(->|\.)kept\b' src/cache/*.c src/cache/*.h
    grep -nE '\b(c|cache)(->|\.)(is_|has_)?(two_sided|blocks|books|codebooks|evictor|tracked|windows|scoring)\b' \
        src/cache/*.c src/cache/*.h
    grep -nE '\bpleat__keep_(all|ring|levels|budget|blocks)\b' src/cache/*.[ch]
    # A forecast names its kind for whoever looks at it; what follows from that is the row's, and other fields say it.
    grep -rnE '\bPLEAT_LANES_[A-Z]+\b|\bforecast(->|\.)kind\b' $(folders src cli bench examples) --include='*.c' --include='*.h' |
        grep -v '^src/cache/keep/'
    grep -nE '\bPLEAT_(POLICY|COMPRESSOR)_[A-Z0-9]+' src/cache/*.[ch] src/cache/keep/*.[ch] | grep -vE '_NONE\b'
}

# The cache's own headers are for src/cache; everybody else has pleat/cache.h.
check_cache_private() {
    grep -rnE '# *include *"cache/' src cli bench --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' |
        grep -v '^src/cache/'
}

# Pages are taken in four places, which cache.h names; they are the only ones that call the pool's takers.
check_cache_takers() {
    local takers='src/cache/(step|fork|image|compress)\.c:'
    grep -rnE '\bpleat__(pool_take(_run)?|pool_advance|plan_commit(_part)?)\(' src --include='*.c' |
        grep -vE "^($takers|src/page/)"
    for file in step:plan_commit fork:pool_take image:pool_take compress:pool_take; do
        grep -q "pleat__${file#*:}(" "src/cache/${file%:*}.c" || echo "src/cache/${file%:*}.c: takes no page: cache.h says it does"
    done
}

# cache_calls: an edge a line, "caller callee", between the files of src/cache for CPUs.
cache_calls() { call_edges src/cache | grep -v 'cuda/' | sed 's/\.c\( \|$\)/\1/g'; }

# No two files of src/cache call each other, directly or around.
check_cache_cycles() { call_cycles src/cache; }

# Rows stand on the ground floor alone, and are reached by their table alone.
check_cache_rooms() {
    cache_calls | awk '
        $1 ~ /^keep\// && $2 !~ /^(keep\/.*|lane|scratch|layouts)$/ { print "src/cache/" $1 ".c calls " $2 ".c: a row calls lane, scratch, layouts" }
        $1 !~ /^keep\// && $2 ~ /^keep\// && $2 != "keep/keep" { print "src/cache/" $1 ".c calls " $2 ".c: ask the row" }'
}

# Files call those that cache.h lists before them.
check_cache_floors() {
    local floors
    floors=$(sed -nE 's,^ \*     ([a-z_]+)(\.c|/) .*,\1,p' src/cache/cache.h)
    cache_calls | awk -v floors="$floors" '
        BEGIN { n = split(floors, names, "\n"); for (i = 1; i <= n; i++) floor[names[i]] = i }
        {
            from = $1; to = $2
            sub(/\/.*/, "", from); sub(/\/.*/, "", to)
            if (!floor[from] || !floor[to]) print "src/cache/cache.h: its list lacks " (floor[from] ? to : from)
            else if (floor[from] < floor[to]) print "src/cache/" $1 ".c calls " $2 ".c, which cache.h lists after it"
        }' | sort -u
}
