# SPDX-License-Identifier: MIT
#
# install.cmake: what `make install` puts below its prefix, and `make uninstall` removes: the command, the libraries, the
# headers, and what pkg-config and find_package(Pleat) read.

install(TARGETS pleat RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS pleat_static pleat_shared EXPORT PleatTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/pleat DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# ---- pkg-config -----------------------------------------------------------------------------------------------------

set(private_libs "-lpcre2-8 -lm -pthread")
if(have_onednn)
    string(PREPEND private_libs "-ldnnl ")
endif()
if(have_sqlite)
    string(PREPEND private_libs "-lsqlite3 ")
endif()
if(have_hiredis)
    string(PREPEND private_libs "-lhiredis ")
endif()
if(have_zmq)
    string(PREPEND private_libs "-lzmq ")
endif()
if(have_cuda)
    get_filename_component(cudart_dir ${CUDART_LIBRARY} DIRECTORY)
    string(APPEND private_libs " -L${cudart_dir} -lcudart_static -ldl -lrt")
endif()
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(pleat.pc.in pleat.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pleat.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- CMake's find_package -------------------------------------------------------------------------------------------

set(pleat_find_cuda "")
if(have_cuda)
    set(pleat_find_cuda "find_dependency(CUDAToolkit)\n")
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Pleat)
configure_package_config_file(cmake/PleatConfig.cmake.in PleatConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(PleatConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT PleatTargets NAMESPACE Pleat:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/PleatConfig.cmake ${PROJECT_BINARY_DIR}/PleatConfigVersion.cmake
        DESTINATION ${package_dir})
