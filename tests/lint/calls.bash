# SPDX-License-Identifier: MIT
#
# calls.bash: which file of a folder calls which, from the objects of the build.

# call_edges FOLDER [TYPES]: a line "CALLER CALLEE" for each two sources of FOLDER (src/NOUN, cli) of which one uses a symbol
# that the other defines; TYPES are nm's letters of what counts, functions (T) where nothing is said.  Paths are relative to
# FOLDER.  What they use of other folders is left out, and so are tables of functions, which are data: who calls through
# a row calls no file.
call_edges() {
    local folder=$1 types=${2:-T} source object
    for source in $(cd "$folder" && find . -name '*.c' | sed 's|^\./||' | sort); do
        for object in "$build"/CMakeFiles/*.dir/"$folder/$source.o"; do # none: what is not built here, as CUDA's stand-ins
            [ ! -f "$object" ] || nm -g -P "$object" | sed "s|^|$source |"
        done
    done | awk -v types="$types" '$3 == "U" { uses[$1 " " $2] = 1; next }
        index(types, $3) { file[$2] = $1 }
        END { for (use in uses) {
                  split(use, at, " ")
                  if (at[2] in file && file[at[2]] != at[1]) edge[at[1] " " file[at[2]]] = 1
              }
              for (e in edge) print e }' | sort
}

# circles_of WHAT: from "CALLER CALLEE" lines, a line for each knot of those that call each other in a circle.
circles_of() {
    tsort 2>&1 > /dev/null | awk -v what="$1" '
        /loop/ { if (knot) print knot; knot = what ": calls go in a circle:"; next }
               { knot = knot " " $2 }
        END    { if (knot) print knot }'
}

# call_cycles FOLDER [TYPES]: the circles among FOLDER's sources; and a line if there are no calls to tell them from.
call_cycles() {
    local edges
    edges=$(call_edges "$@")
    [ -n "$edges" ] || echo "$1: no calls found in the objects of $build"
    circles_of "$1" <<< "$edges"
}
