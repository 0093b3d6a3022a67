# SPDX-License-Identifier: MIT
#
# flags.cmake: what every C file is compiled with, what a sanitizer adds, and the instruction sets that a file's name
# asks for.  CUDA's flags are in cuda.cmake.

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g") # NDEBUG below
if(NOT PLEAT_DEBUG)
    string(APPEND CMAKE_C_FLAGS_RELEASE "1")
endif()
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# pleat_c_options(FLAG...): for C alone.
function(pleat_c_options)
    foreach(flag IN LISTS ARGN)
        add_compile_options($<$<COMPILE_LANGUAGE:C>:${flag}>)
    endforeach()
endfunction()

add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
pleat_c_options(-Wall -Wextra -Wno-missing-field-initializers -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith)
# The scalar code gives the same bits from every compiler; kernels under x86/ and arm/ may contract, within their bounds.
pleat_c_options(-ffp-contract=off)
pleat_c_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=) # __FILE__ without this machine's paths

# ---- sanitizers -----------------------------------------------------------------------------------------------------

if(PLEAT_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "PLEAT_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang")
    endif()
    set(PLEAT_SANITIZE address)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(PLEAT_SANITIZE STREQUAL address)
    add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=address,undefined)
elseif(PLEAT_SANITIZE STREQUAL thread)
    add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
    add_link_options(-fsanitize=thread)
elseif(NOT PLEAT_SANITIZE STREQUAL none)
    message(FATAL_ERROR "PLEAT_SANITIZE is none, address or thread, not ${PLEAT_SANITIZE}")
elseif(NOT PLEAT_ASSERTS)
    add_compile_definitions(NDEBUG)
endif()

# ---- by a file's name -----------------------------------------------------------------------------------------------

set(avx512_flags -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)

# pleat_source_flags(SOURCES HOT): each file of the list SOURCES gets the instruction set that its ending names, those
# under x86/ and arm/ may contract, and those of HOT are compiled for speed.
function(pleat_source_flags sources hot)
    if(PLEAT_SANITIZE STREQUAL none)
        set_property(SOURCE ${hot} APPEND PROPERTY COMPILE_OPTIONS -O3)
    endif()
    foreach(source IN LISTS sources)
        set(flags "")
        if(source MATCHES "_avx512\\.c$")
            set(flags ${avx512_flags} -mavx512vnni)
        elseif(source MATCHES "_vbmi2\\.c$")
            set(flags ${avx512_flags} -mavx512vnni -mavx512vbmi -mavx512vbmi2 -mgfni)
        elseif(source MATCHES "_amx\\.c$")
            set(flags ${avx512_flags} -mamx-tile -mamx-int8)
        elseif(source MATCHES "_avx2\\.c$")
            set(flags -mavx2 -mfma -mf16c)
        elseif(source MATCHES "_avxvnni\\.c$")
            set(flags -mavxvnni -mavx2 -mfma -mf16c)
        elseif(source MATCHES "_dotprod\\.c$")
            set(flags -march=armv8.2-a+dotprod)
        endif()
        if(source MATCHES "/(x86|arm)/")
            list(APPEND flags -ffp-contract=fast)
            # A sanitizer's checks in unrolled kernels: gcc takes minutes for some files with -O2, and sees less with -Og.
            if(NOT PLEAT_SANITIZE STREQUAL none AND CMAKE_C_COMPILER_ID STREQUAL GNU)
                list(APPEND flags -Og -Wno-maybe-uninitialized)
            endif()
        endif()
        # clang 14 takes minutes for these with its sanitizers, seconds without; no fuzz target comes there.
        if(PLEAT_FUZZ AND source MATCHES "/(linear|model)/x86/")
            list(APPEND flags -fno-sanitize=all)
        endif()
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${flags})
    endforeach()
endfunction()
