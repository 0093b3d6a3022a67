# SPDX-License-Identifier: MIT
#
# serving.bash: rules of src/serving.

# Files call downwards only: the list at the head of src/serving/internal.h.
check_serving_calls() { call_cycles src/serving; }

# A request's fields of one state are reached through the accessors that assert it, and its state changes in one place.
check_serving_parts() {
    local outside='src/serving/request\.h:'
    grep -rnE '(->|\.)part\.(waiting|swapped|running)' src/serving | grep -vE "^$outside"
    grep -rnE '(->|\.)state *= ' src/serving | grep -vE "^$outside"
}
