# SPDX-License-Identifier: MIT
#
# cuda.cmake: is CUDA built (have_cuda), for which architectures (cuda_archs), and how (pleat_cuda_objects).
#
# nvcc is called by hand: as a language of CMake's it would make every program here, and every program that links the
# installed library, be linked by it.

pleat_three_way(PLEAT_CUDA)
string(TOLOWER "${PLEAT_CUDA}" cuda)

# Code for an architecture: 89-real is machine code alone, 90-virtual PTX alone, a plain number both.  Drivers translate
# PTX for later GPUs.
set(CMAKE_CUDA_ARCHITECTURES "" CACHE STRING "GPU architectures: numbers from 80 on, with -real or -virtual; empty: see PLEAT_CUDA")
set(every_arch 80 90a-real) # 8.6 and 8.9 run what is made for 8.0

# ---- the GPU that is here -------------------------------------------------------------------------------------------

# pleat_find_gpus(VAR): the architectures of this machine's GPUs, as 90a-real; every_arch if its driver is there but does
# not say which; empty if there is none from compute capability 8.0 on.
function(pleat_find_gpus var)
    find_program(NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib)
    set(found "")
    set(said "")
    if(NVIDIA_SMI)
        execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                        OUTPUT_VARIABLE said ERROR_QUIET TIMEOUT 20)
    endif()
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${said}")
    foreach(capability IN LISTS capabilities)
        string(REPLACE "." "" number ${capability})
        if(number EQUAL 90)
            set(number 90a) # instructions that Hopper alone has
        endif()
        if(NOT number LESS 80)
            list(APPEND found ${number}-real)
        endif()
    endforeach()
    list(REMOVE_DUPLICATES found)
    if(NOT capabilities AND EXISTS /proc/driver/nvidia/version)
        set(found ${every_arch})
    endif()
    set(${var} "${found}" PARENT_SCOPE)
endfunction()

# ---- nvcc -----------------------------------------------------------------------------------------------------------

# pleat_gencode(VAR ARCH...): nvcc's options for the architectures.
function(pleat_gencode var)
    set(options "")
    foreach(arch IN LISTS ARGN)
        if(NOT arch MATCHES "^([89][0-9]|[1-9][0-9][0-9])[af]?(-real|-virtual)?$")
            message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES: ${arch} is no number from 80 on, with -real or -virtual behind it or not, as 90a-real")
        endif()
        string(REGEX REPLACE "-(real|virtual)$" "" number ${arch})
        if(arch MATCHES "-real$")
            list(APPEND options -gencode=arch=compute_${number},code=sm_${number})
        elseif(arch MATCHES "-virtual$")
            list(APPEND options -gencode=arch=compute_${number},code=compute_${number})
        else()
            list(APPEND options "-gencode=arch=compute_${number},code=[sm_${number},compute_${number}]")
        endif()
    endforeach()
    set(${var} "${options}" PARENT_SCOPE)
endfunction()

# pleat_probe_cuda(VAR): sets VAR if nvcc makes cmake/cuda_probe.cu; else cuda_missing says why not.
function(pleat_probe_cuda var)
    set(${var} OFF PARENT_SCOPE)
    if(NOT NVCC OR NOT EXISTS ${NVCC})
        set(cuda_missing "there is no nvcc" PARENT_SCOPE)
        return()
    endif()
    execute_process(COMMAND ${NVCC} ${cuda_options} -c ${PROJECT_SOURCE_DIR}/cmake/cuda_probe.cu
                            -o ${PROJECT_BINARY_DIR}/cuda_probe.o
                    RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT result EQUAL 0)
        string(REGEX REPLACE "\n.*" "" line "${said}")
        set(cuda_missing "${NVCC} does not compile cmake/cuda_probe.cu: ${line}" PARENT_SCOPE)
    elseif(NOT CUDART_LIBRARY)
        set(cuda_missing "${NVCC} works, but libcudart_static.a was not found beside it" PARENT_SCOPE)
    else()
        set(${var} ON PARENT_SCOPE)
    endif()
endfunction()

# ---- whether, and for what ------------------------------------------------------------------------------------------

set(have_cuda OFF)
set(cuda_archs "")
set(cuda_missing "")
if(cuda STREQUAL on)
    set(cuda_archs ${every_arch})
elseif(cuda STREQUAL auto AND PLEAT_SANITIZE STREQUAL none AND NOT CMAKE_CROSSCOMPILING)
    pleat_find_gpus(cuda_archs)
    set(cuda_missing "no GPU was found here; PLEAT_CUDA=on builds its kernels all the same")
endif()
if(CMAKE_CUDA_ARCHITECTURES AND (cuda_archs OR cuda_missing))
    set(cuda_archs ${CMAKE_CUDA_ARCHITECTURES})
endif()

# Host code without what would need the C++ library.  Division and square root stay exact; a*b + c may be one operation.
set(cuda_options -std=c++17 -O3 --threads=0 --compress-mode=size -Werror=all-warnings
                 -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-Werror,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fPIC,-fvisibility=hidden
                 -Xcompiler=-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
pleat_gencode(gencode ${cuda_archs})
list(APPEND cuda_options ${gencode})

if(cuda_archs)
    find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
    if(NVCC)
        get_filename_component(nvcc_real ${NVCC} REALPATH)
        get_filename_component(cuda_root ${nvcc_real}/../.. ABSOLUTE)
        find_library(CUDART_LIBRARY libcudart_static.a HINTS ${cuda_root}/lib64 ${cuda_root}/targets/x86_64-linux/lib)
    endif()
    pleat_probe_cuda(have_cuda)
    if(NOT have_cuda AND cuda STREQUAL on)
        message(FATAL_ERROR "PLEAT_CUDA is on, but ${cuda_missing}.  Install the CUDA toolkit, 13 or later, or name its compiler with -DNVCC=...")
    endif()
endif()
if(NOT have_cuda)
    set(cuda_archs "")
    if(cuda_missing)
        message(STATUS "no CUDA: ${cuda_missing}")
    endif()
endif()

# pleat_cuda_objects(OBJECTS FLAGS SOURCE...): OBJECTS is the object files that nvcc makes of the sources.
function(pleat_cuda_objects objects flags)
    set(made "")
    foreach(source IN LISTS ARGN)
        file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
        set(object ${PROJECT_BINARY_DIR}/nvcc/${name}.o)
        get_filename_component(dir ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${dir})
        add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d
                           COMMAND ${NVCC} ${cuda_options} ${flags} -MD -MT ${object} -MF ${object}.d -c ${source} -o ${object}
                           COMMENT "nvcc ${name}" VERBATIM)
        list(APPEND made ${object})
    endforeach()
    set(${objects} ${made} PARENT_SCOPE)
endfunction()
