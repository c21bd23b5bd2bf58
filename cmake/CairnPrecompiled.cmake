# Precompiled headers: the standard headers that most files include, read once instead of once per file (a third of the
# processor time of a build). One for src and the programs, one with GoogleTest for the tests; none of our own headers,
# so that a change to one of ours never compiles everything again. Sources still include the headers that they use:
# the rows fuzz and tidy of scripts/test compile without precompiled headers (CMAKE_DISABLE_PRECOMPILE_HEADERS).
file(WRITE "${PROJECT_BINARY_DIR}/precompiled.cpp.new" "// What a target with precompiled headers needs: a source.\n")
configure_file("${PROJECT_BINARY_DIR}/precompiled.cpp.new" "${PROJECT_BINARY_DIR}/precompiled.cpp" COPYONLY)

# As CMake does for Clang, but without times, which Clang writes into them, and without paths that ccache cannot make
# relative to the source tree: clones share objects, as they do with GCC.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -fno-pch-timestamp -Xclang -emit-pch -Xclang -include -Xclang cmake_pch.hxx
      -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -fno-pch-timestamp -include-pch <PCH_FILE>)
endif()

# cairn_precompiled_headers(target LIBS the headers' libraries ... HEADERS <a> ...)
function(cairn_precompiled_headers target)
  cmake_parse_arguments(ARG "" "" "LIBS;HEADERS" ${ARGN})
  add_library(${target} STATIC "${PROJECT_BINARY_DIR}/precompiled.cpp")
  target_link_libraries(${target} PRIVATE cairn_options ${ARG_LIBS})
  target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir")
  endif()
endfunction()

set(headers <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <tuple> <unordered_map> <utility> <vector>)
cairn_precompiled_headers(cairn_precompiled LIBS fmt::fmt HEADERS ${headers} <fmt/core.h>)
cairn_library_code(cairn_precompiled)
# Code of tests, in every preset: more optimisation takes a fifth of the compile time and does not pay off at run time;
# with
# -O0, tests that compare many bytes took two to three times as long.
function(cairn_test_code target)
  set_target_properties(${target} PROPERTIES CAIRN_TEST_CODE ON)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
endfunction()
if(CAIRN_BUILD_TESTS)
  cairn_precompiled_headers(cairn_precompiled_tests LIBS GTest::gtest GTest::gmock
                            HEADERS ${headers} <gtest/gtest.h> <gmock/gmock.h>)
  cairn_test_code(cairn_precompiled_tests)
endif()

# The headers of `from` for a target that is compiled with the same flags. GCC 12 forgets that std::string
# in them is a system type, and reports overlaps in string sums that cannot happen (GCC bug 105651);
# the rows without precompiled headers look for real ones.
function(cairn_use_precompiled target from)
  target_precompile_headers(${target} REUSE_FROM ${from})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;-Wno-array-bounds>")  # the first: for ccache
  endif()
endfunction()
