# SPDX-License-Identifier: MIT
#
# libraries.cmake: what others made and we link.  PCRE2, Jansson and xxHash's header have to be there; have_onednn,
# have_zstd, have_curl, have_libevent, have_tls, have_sqlite, have_hiredis, have_zmq, have_msgpack and have_editline say whether
# oneDNN, zstd, libcurl with OpenSSL's libcrypto, libevent, libevent_openssl with OpenSSL's libssl, SQLite, hiredis, libzmq,
# msgpack, and libedit are.

# pleat_find(VAR header library package): VAR_INCLUDE and VAR_LIBRARY, or an end that names the Debian package.
function(pleat_find var header library package)
    find_path(${var}_INCLUDE ${header})
    find_library(${var}_LIBRARY ${library})
    if(NOT ${var}_INCLUDE OR NOT ${var}_LIBRARY)
        message(FATAL_ERROR "lib${library} with <${header}> is missing: Debian package ${package}")
    endif()
endfunction()

# pleat_optional(NAME VAR header library package): the library, as the option PLEAT_NAME says (auto: if it is there);
# have_name says whether.
macro(pleat_optional option var header library package)
    string(TOLOWER ${option} name)
    pleat_three_way(PLEAT_${option})
    string(TOLOWER ${PLEAT_${option}} wanted)
    find_path(${var}_INCLUDE ${header})
    find_library(${var}_LIBRARY ${library})
    set(have_${name} OFF)
    if(wanted STREQUAL on OR (wanted STREQUAL auto AND ${var}_INCLUDE AND ${var}_LIBRARY))
        pleat_find(${var} ${header} ${library} ${package})
        set(have_${name} ON)
    endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
pleat_find(PCRE2 pcre2.h pcre2-8 libpcre2-dev)
pleat_find(JANSSON jansson.h jansson libjansson-dev)
find_path(XXHASH_INCLUDE xxhash.h) # used inline: there is nothing to link
if(NOT XXHASH_INCLUDE)
    message(FATAL_ERROR "<xxhash.h> is missing: Debian package libxxhash-dev")
endif()

# ---- oneDNN ---------------------------------------------------------------------------------------------------------

pleat_optional(ONEDNN ONEDNN oneapi/dnnl/dnnl.h dnnl libdnnl-dev)

# ---- zstd -----------------------------------------------------------------------------------------------------------

# pleat_probe_zstd(VAR FLAG...): does cmake/zstd_probe.c link?
function(pleat_probe_zstd var)
    try_compile(${var} SOURCES ${PROJECT_SOURCE_DIR}/cmake/zstd_probe.c
                CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${ZSTD_INCLUDE};${PROJECT_SOURCE_DIR};${PROJECT_SOURCE_DIR}"
                COMPILE_DEFINITIONS ${ARGN} LINK_LIBRARIES ${ZSTD_LIBRARY})
    set(${var} ${${var}} PARENT_SCOPE)
endfunction()

# have_zstd: 0 none, 1 zstd, 2 also the coders inside of it, which only its static library has.
pleat_three_way(PLEAT_ZSTD)
string(TOLOWER ${PLEAT_ZSTD} zstd)
find_path(ZSTD_INCLUDE zstd.h)
find_library(ZSTD_LIBRARY NAMES libzstd.a zstd)
set(have_zstd 0)
if(zstd STREQUAL on OR (zstd STREQUAL auto AND ZSTD_INCLUDE AND ZSTD_LIBRARY))
    pleat_find(ZSTD zstd.h zstd libzstd-dev)
    pleat_probe_zstd(zstd_links)
    pleat_probe_zstd(zstd_has_parts -DPROBE_PARTS)
    if(zstd_has_parts)
        set(have_zstd 2)
    elseif(zstd_links)
        set(have_zstd 1)
    elseif(zstd STREQUAL on)
        message(FATAL_ERROR "a program with ${ZSTD_LIBRARY} and ${ZSTD_INCLUDE}/zstd.h does not link")
    endif()
endif()

# ---- libcurl, and OpenSSL's hashes ----------------------------------------------------------------------------------

pleat_three_way(PLEAT_CURL)
string(TOLOWER ${PLEAT_CURL} curl)
find_path(CURL_INCLUDE curl/curl.h)
find_library(CURL_LIBRARY curl)
find_path(CRYPTO_INCLUDE openssl/evp.h)
find_library(CRYPTO_LIBRARY crypto)
set(have_curl OFF)
if(curl STREQUAL on OR (curl STREQUAL auto AND CURL_INCLUDE AND CURL_LIBRARY AND CRYPTO_INCLUDE AND CRYPTO_LIBRARY))
    pleat_find(CURL curl/curl.h curl libcurl4-openssl-dev)
    pleat_find(CRYPTO openssl/evp.h crypto libssl-dev)
    set(have_curl ON)
endif()

# ---- libevent -------------------------------------------------------------------------------------------------------

pleat_optional(LIBEVENT EVENT event2/bufferevent.h event_core libevent-dev)

# TLS of `pleat serve`: OpenSSL behind libevent's bufferevents.
pleat_three_way(PLEAT_TLS)
string(TOLOWER ${PLEAT_TLS} tls)
find_path(SSL_INCLUDE openssl/ssl.h)
find_library(SSL_LIBRARY ssl)
find_library(EVENT_OPENSSL_LIBRARY event_openssl)
set(have_tls OFF)
if(have_libevent AND (tls STREQUAL on OR (tls STREQUAL auto AND SSL_INCLUDE AND SSL_LIBRARY AND CRYPTO_LIBRARY
                                          AND EVENT_OPENSSL_LIBRARY)))
    pleat_find(SSL openssl/ssl.h ssl libssl-dev)
    pleat_find(CRYPTO openssl/evp.h crypto libssl-dev)
    pleat_find(EVENT_OPENSSL event2/bufferevent_ssl.h event_openssl libevent-dev)
    set(have_tls ON)
endif()

# ---- SQLite ---------------------------------------------------------------------------------------------------------

pleat_optional(SQLITE SQLITE sqlite3.h sqlite3 libsqlite3-dev)

# ---- hiredis --------------------------------------------------------------------------------------------------------

pleat_optional(HIREDIS HIREDIS hiredis/hiredis.h hiredis libhiredis-dev)

# ---- libzmq and msgpack ---------------------------------------------------------------------------------------------

pleat_optional(ZMQ ZMQ zmq.h zmq libzmq3-dev)
pleat_optional(MSGPACK MSGPACK msgpack.h msgpackc libmsgpack-dev) # used inline: there is nothing to link

# ---- libedit --------------------------------------------------------------------------------------------------------

pleat_optional(EDITLINE EDITLINE histedit.h edit libedit-dev)
