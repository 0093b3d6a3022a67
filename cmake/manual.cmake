# SPDX-License-Identifier: MIT
#
# manual.cmake: man pages and shell completion, written by the command itself from its tables of options: build/man,
# build/completion, and where systems look for them once installed.  Not where the command cannot be run here.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    return()
endif()

set(man_dir ${CMAKE_BINARY_DIR}/man)
set(completion_dir ${CMAKE_BINARY_DIR}/completion)
file(MAKE_DIRECTORY ${man_dir} ${completion_dir})
add_custom_command(OUTPUT ${man_dir}/pleat.1 DEPENDS pleat COMMENT "man pages" VERBATIM
                   COMMAND ${CMAKE_COMMAND} -E rm -rf ${man_dir} # a page of a command that is gone goes, too
                   COMMAND ${CMAKE_COMMAND} -E make_directory ${man_dir}
                   COMMAND pleat help --man-to ${man_dir})
set(manual ${man_dir}/pleat.1)
foreach(script bash/pleat zsh/_pleat fish/pleat.fish)
    get_filename_component(shell ${script} DIRECTORY)
    file(MAKE_DIRECTORY ${completion_dir}/${shell})
    add_custom_command(OUTPUT ${completion_dir}/${script} DEPENDS pleat COMMENT "completion for ${shell}" VERBATIM
                       COMMAND pleat completion ${shell} > ${completion_dir}/${script})
    list(APPEND manual ${completion_dir}/${script})
endforeach()
add_custom_target(pleat_manual ALL DEPENDS ${manual})

install(DIRECTORY ${man_dir}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "pleat*.1")
install(FILES ${completion_dir}/bash/pleat DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${completion_dir}/zsh/_pleat DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${completion_dir}/fish/pleat.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
