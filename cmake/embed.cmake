# SPDX-License-Identifier: MIT
#
# embed.cmake: files as arrays in C.

# pleat_embed(SOURCES HEADER FILE...): add to SOURCES a C file for each FILE, which defines what HEADER declares:
# embedded_NAME and embedded_NAME_bytes, NAME being the file's with _ for its dot.  It is made anew when the file changes.
# Files are ASCII.
function(pleat_embed sources header)
    foreach(file IN LISTS ARGN)
        get_filename_component(name ${file} NAME)
        string(REPLACE "." "_" name ${name})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
        file(READ ${file} bytes HEX)
        string(LENGTH ${bytes} n_digits)
        math(EXPR n_bytes "${n_digits} / 2")
        string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes ${bytes})
        string(CONCAT text "#include \"${header}\"\n\n"
                      "const char embedded_${name}[] = {${bytes}};\nconst size_t embedded_${name}_bytes = ${n_bytes};\n")
        set(made ${PROJECT_BINARY_DIR}/embedded/${name}.c)
        file(CONFIGURE OUTPUT ${made} CONTENT "${text}" @ONLY)
        list(APPEND made_sources ${made})
    endforeach()
    set(${sources} ${${sources}} ${made_sources} PARENT_SCOPE)
endfunction()
