# SPDX-License-Identifier: MIT
#
# Building for 64-bit Arm on another Debian, and running what comes out under qemu:
#
#     cmake -S . -B build/arm -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DPLEAT_ONEDNN=off
#
# Packages: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user, and libpcre2-8-0 and libjansson4 of architecture
# arm64.  Of these two the libraries alone are enough: their headers are the same everywhere, so the ones that building
# for this machine needs serve, and the arm64 -dev packages would bring a second C library's development files.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Without -L /usr/aarch64-linux-gnu: the two libraries bring libc6:arm64 and with it the loader at its usual place, and
# the cross compiler's loader with that C library hangs in pthread_create().
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

# With a soname where the -dev package, and so the plain name, is missing.
find_library(PCRE2_LIBRARY NAMES libpcre2-8.so libpcre2-8.so.0 PATHS /usr/lib/aarch64-linux-gnu NO_DEFAULT_PATH)
find_library(JANSSON_LIBRARY NAMES libjansson.so libjansson.so.4 PATHS /usr/lib/aarch64-linux-gnu NO_DEFAULT_PATH)
