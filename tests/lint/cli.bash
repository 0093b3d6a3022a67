# SPDX-License-Identifier: MIT
#
# cli.bash: the rules of the command's folders.
#
#     main.c ──> every command ──> lib/
#                bench/ ──> bench/device/, bench/lib/;  bench/device/ ──> bench/lib/;  eval/ ──> eval/report/

# cli_may_include FOLDER TARGET: may a file of cli/FOLDER include TARGET, a path below cli/ in another folder?
cli_may_include() {
    local folder=${1%/cuda} target=$2
    case $folder in
        .) return 0 ;;                                    # main.c
        lib | lib/*) [[ $target == lib/* ]] ;;
        bench/*) [[ $target == lib/* || $target == bench/lib/* || $target == "$folder"/* ]] ;;
        *) [[ $target == lib/* || $target == "$folder"/* ]] ;; # a command, and what lies below it
    esac
}

# The command sees the library as any program does, and a command's folder sees no other command's.
check_cli_includes() {
    local file line text target folder
    grep -rnE '^ *# *include *<(cli|src|[a-z]+/cuda|cache|serving)/' cli
    grep -rnE '^ *# *include *"' cli | while IFS=: read -r file line text; do
        target=$(sed -E 's/.*"([^"]*)".*/\1/' <<< "$text")
        [[ $target != *../* ]] || echo "$file:$line: \"$target\": paths begin with cli/, or stand in the same folder"
        [ ! -f "include/$target" ] || continue
        folder=$(dirname "${file#cli/}")
        if [ -f "cli/$folder/$target" ]; then continue; fi
        if [ ! -f "$target" ] || [[ $target != cli/* ]]; then
            echo "$file:$line: cli/ sees include/pleat and itself, not \"$target\""
        elif ! cli_may_include "$folder" "${target#cli/}"; then
            echo "$file:$line: cli/$folder may not include \"$target\""
        fi
    done
}

# No circle of calls, neither among the files of cli/ nor among its folders; what they share as data counts, too.
check_cli_circles() {
    call_cycles cli TDBR
    call_edges cli TDBR | sed -E 's#/?[^/ ]+( |$)#\1#g; s#^ #. #' | awk 'NF == 2 && $1 != $2' | sort -u | circles_of "cli's folders"
}
