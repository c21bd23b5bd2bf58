# The files of `cmake --install`: the program with its man pages and shell completions, the public headers, the library,
# the files for find_package(cairn) and pkg-config, the licence, pages and Slurm scripts. All of it may be moved: no
# file names the prefix.
include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/cairn")
install(TARGETS cairn_library EXPORT cairn)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cairn" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(EXPORT cairn NAMESPACE cairn:: FILE cairnTargets.cmake DESTINATION "${package_folder}")
if(CAIRN_BUILD_PROGRAM)
  install(TARGETS cairn)
  install(DIRECTORY "${PROJECT_BINARY_DIR}/share/man/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
  foreach(shell bash-completion zsh fish)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/${shell}" DESTINATION "${CMAKE_INSTALL_DATADIR}")
  endforeach()
  set_target_properties(cairn PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # HDF5 may be where the loader does not look
endif()
set_target_properties(cairn_library PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)

# The shared library loads its own dependencies; a program that links the static one needs all of them.
set(CAIRN_STATIC ON)
set(requires fmt spdlog libisal liburing)
list(JOIN CAIRN_HDF5_LIBRARIES " " libraries)
if(CAIRN_HAVE_CUDA)
  get_target_property(runtime CUDA::cudart_static IMPORTED_LOCATION)
  string(APPEND libraries " ${runtime} -lrt -ldl")
endif()
string(APPEND libraries " -pthread")
if(BUILD_SHARED_LIBS)
  set(CAIRN_STATIC OFF)
  set(requires)
  set(libraries)
endif()
list(JOIN requires ", " CAIRN_PC_REQUIRES)
set(CAIRN_PC_LIBRARIES "${libraries}")
file(RELATIVE_PATH CAIRN_PC_INCLUDES "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")

set(generated "${PROJECT_BINARY_DIR}/package")
configure_file("${PROJECT_SOURCE_DIR}/cmake/cairn.pc.in" "${generated}/cairn.pc" @ONLY)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/cairnConfig.cmake.in" "${generated}/cairnConfig.cmake"
                              INSTALL_DESTINATION "${package_folder}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${generated}/cairnConfigVersion.cmake" VERSION "${PROJECT_VERSION}"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${generated}/cairnConfig.cmake" "${generated}/cairnConfigVersion.cmake" DESTINATION "${package_folder}")
install(FILES "${generated}/cairn.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

set(pages "${CMAKE_INSTALL_DATADIR}/doc/cairn")
install(FILES LICENSE README.md CHANGELOG.md src/format/FORMAT.md DESTINATION "${pages}")
install(PROGRAMS slurm/bench.sbatch slurm/train.sbatch DESTINATION "${CMAKE_INSTALL_DATADIR}/cairn/slurm")
install(FILES slurm/README.md DESTINATION "${CMAKE_INSTALL_DATADIR}/cairn/slurm")
