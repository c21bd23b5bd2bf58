# Uses ccache, if there is one, so that build folders with equal flags share objects:
# paths are relative to the source tree, and neither the build folder nor a file's creation time matters.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CAIRN_CCACHE ccache)
  if(CAIRN_CCACHE)
    set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
        "CCACHE_SLOPPINESS=include_file_ctime,include_file_mtime,pch_defines,time_macros" "${CAIRN_CCACHE}")
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
  endif()
endif()
