# Functions that declare a layer, a program and a test, so that warnings, sanitizers and labels are the same everywhere.

add_library(cairn_options INTERFACE)
# Half of the code that nvcc passes to the host compiler is nvcc's own: fewer warnings there.
target_compile_options(cairn_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wconversion;-Wshadow>"
                       "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
# GCC 12 reports overflows of std::vector growth and overlaps in std::string sums that cannot happen (GCC bugs 105329,
# 105651).
target_compile_options(cairn_options INTERFACE "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-stringop-overflow;-Wno-restrict>")
# Conversions that GCC's -Wconversion leaves out in C++.
target_compile_options(cairn_options INTERFACE "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-sign-conversion>")
if(CAIRN_WERROR)
  target_compile_options(cairn_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>"
                         "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(CAIRN_SANITIZER STREQUAL "address")
  # Without the checks that cost most time to compile and whose findings the address sanitizer has as well.
  # Tests are compiled without the checks for undefined behaviour and for the scopes of their own variables,
  # which take half of their compile time: only src matters here.
  target_compile_options(cairn_options INTERFACE -fsanitize=address -fno-omit-frame-pointer
    "$<$<BOOL:$<TARGET_PROPERTY:CAIRN_TEST_CODE>>:-fno-sanitize-address-use-after-scope>"
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:CAIRN_TEST_CODE>>>:-fsanitize=undefined;-fno-sanitize=null,vptr,object-size;-fno-sanitize-recover=all>")
  target_link_options(cairn_options INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(cairn_options INTERFACE CAIRN_ADDRESS_SANITIZER)
elseif(CAIRN_SANITIZER STREQUAL "thread")
  target_compile_options(cairn_options INTERFACE -fsanitize=thread)
  target_link_options(cairn_options INTERFACE -fsanitize=thread)
  target_compile_definitions(cairn_options INTERFACE CAIRN_THREAD_SANITIZER)
elseif(CAIRN_SANITIZER)
  message(FATAL_ERROR "CAIRN_SANITIZER must be empty, address or thread, not '${CAIRN_SANITIZER}'")
endif()

# Code of the library, and of everything that shares its precompiled headers: it may also be part of a shared library,
# and calls within that library stay direct.
function(cairn_library_code target)
  set(flags -fPIC -fno-semantic-interposition)
  list(JOIN flags "," nvcc_flags)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${flags}>"
                         "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${nvcc_flags}>")
endfunction()

include(CairnPrecompiled)

# cairn_layer(NAME base SOURCES a.cpp ... [LAYERS lower layers ...] [LIBS external ...] [PRIVATE_LIBS external ...])
# makes the static library cairn_<NAME> with alias cairn::<NAME>. Includes are written "layer/file.hpp". Only what links
# single layers needs these archives: they are not part of `all` themselves.
function(cairn_layer)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LAYERS;LIBS;PRIVATE_LIBS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cairn_layer: unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set(target cairn_${ARG_NAME})
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  add_library(cairn::${ARG_NAME} ALIAS ${target})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} PUBLIC cairn::headers ${ARG_LIBS} PRIVATE cairn_options ${ARG_PRIVATE_LIBS})
  foreach(layer IN LISTS ARG_LAYERS)
    target_link_libraries(${target} PUBLIC cairn::${layer})
  endforeach()
  cairn_library_code(${target})
  cairn_use_precompiled(${target} cairn_precompiled)
endfunction()

# cairn_program(NAME cairn SOURCES ... LIBS ...)
function(cairn_program)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LIBS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cairn_program: unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE cairn_options ${ARG_LIBS})
  cairn_library_code(${ARG_NAME})
  cairn_use_precompiled(${ARG_NAME} cairn_precompiled)
endfunction()

set(CAIRN_TEST_RUN_DIR "${PROJECT_BINARY_DIR}/test-run")

# Of a test entry, COST is about the seconds that it takes, where these are many: CTest begins with those, so that no
# long one is left alone at the end.

# The target tests-<label> builds the programs of the tests with that label. Labels that decide which row of scripts/test
# runs a test: ranks, mpi-small and races (below), any-mpi (of what another MPI may do otherwise), errors (walks many
# error paths quickly: runs under the address sanitizer too), without-cuda (of a layer that has another source without
# CUDA), long (scripts/test --long only).
add_custom_target(tests-long)
function(cairn_build_with_label target)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET tests-${label})
      add_custom_target(tests-${label})
    endif()
    add_dependencies(tests-${label} ${target})
  endforeach()
endfunction()

function(cairn_test_program target)
  cairn_build_with_label(${target} ${ARGN})
  cairn_test_code(${target})
endfunction()

# Lost memory is looked for in GoogleTest programs. Not in `cairn` itself and others that end with MPI: what MPI loses cannot be
# told from ours once its libraries are unloaded (tests/support/mpi_main.cpp looks before). And without following
# __tls_get_addr: GCC 12 takes a thread-local block that begins 16 bytes into a page for one with a header of an older glibc,
# and the search for leaks ends in a fault ("Tracer caught signal 11").
function(cairn_test_leaks test)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1:intercept_tls_get_addr=0"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/leaks.supp:print_suppressions=0")
endfunction()

function(cairn_test_environment test dir)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
    "CAIRN_TEST_DATA=${PROJECT_SOURCE_DIR}/tests/data"
    "CAIRN_BIN_DIR=${PROJECT_BINARY_DIR}/bin"
    "OMPI_MCA_rmaps_base_oversubscribe=1"
    "OMPI_ALLOW_RUN_AS_ROOT=1" "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    "OMPI_MCA_mpi_yield_when_idle=1" "OMPI_MCA_hwloc_base_binding_policy=none"
    "ASAN_OPTIONS=detect_leaks=0"
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1")
  if(CAIRN_SANITIZER STREQUAL "thread")
    # UCX takes a lock in the madvise with which glibc gives back the stack of a thread; to the sanitizer that thread has
    # ended, and so it crashes.
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "UCX_MEM_EVENTS=no")
  endif()
  file(MAKE_DIRECTORY "${dir}")
  set_property(TEST ${test} PROPERTY WORKING_DIRECTORY "${dir}")
endfunction()

# cairn_add_test(NAME format SOURCES a_test.cpp ... LIBS cairn::format [LABELS unit])
# One GoogleTest program without MPI, one ctest entry. Those of layers that know ranks (threads, here) are also labelled
# ranks: what the thread sanitizer is for.
function(cairn_add_test)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LIBS;LABELS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cairn_add_test: unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(ARG_LIBS MATCHES "cairn::(comm|io|planning|root|opening|codes|checkpoint|conversion)")
    list(APPEND ARG_LABELS ranks)
  endif()
  set(target test_${ARG_NAME})
  add_executable(${target} ${ARG_SOURCES})
  cairn_test_program(${target} ${ARG_LABELS})
  target_link_libraries(${target} PRIVATE cairn_options ${ARG_LIBS} cairn_test_main GTest::gtest GTest::gmock)
  cairn_use_precompiled(${target} cairn_precompiled_tests)
  add_test(NAME ${ARG_NAME} COMMAND ${target})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}")
  cairn_test_environment(${ARG_NAME} "${CAIRN_TEST_RUN_DIR}/${ARG_NAME}")
  cairn_test_leaks(${ARG_NAME})
endfunction()

# cairn_add_mpi_test(NAME comm SOURCES ... LIBS ... RANKS 1 2 4 7 [IN_MEMORY 2] [LONG 4] [LABELS mpi])
# One GoogleTest program on MPI; one ctest entry per rank count, one per count of IN_MEMORY with its files in /dev/shm,
# and one labelled long and other-ranks per count of LONG: counts that take the same paths as others, of which
# scripts/test draws two every time. The main of tests/support/mpi_main.cpp fails when the launcher started another
# number of ranks than the entry says. Entries labelled mpi on 2 and 3 ranks are also labelled mpi-small, and races when
# they are labelled any-mpi; those labelled fault on up to 2 ranks are labelled errors: what the sanitizer presets run.
function(cairn_add_mpi_test)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LIBS;LABELS;RANKS;IN_MEMORY;LONG" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cairn_add_mpi_test: unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_RANKS)
    message(FATAL_ERROR "cairn_add_mpi_test(${ARG_NAME}): RANKS is missing")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS mpi)
  endif()
  set(target mpi_test_${ARG_NAME})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE cairn_options ${ARG_LIBS} cairn_mpi_test_support GTest::gtest GTest::gmock)
  cairn_use_precompiled(${target} cairn_precompiled_tests)
  cairn_test_program(${target})
  foreach(ranks IN LISTS ARG_RANKS)
    cairn_mpi_test_entry(${ARG_NAME}.np${ranks} ${target} ${ranks} "${ARG_LABELS}")
  endforeach()
  foreach(ranks IN LISTS ARG_IN_MEMORY)
    set(test ${ARG_NAME}_in_memory.np${ranks})
    cairn_mpi_test_entry(${test} ${target} ${ranks} "${ARG_LABELS}")
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "CAIRN_TEST_TMP=/dev/shm")
  endforeach()
  foreach(ranks IN LISTS ARG_LONG)
    cairn_mpi_test_entry(${ARG_NAME}_long.np${ranks} ${target} ${ranks} "long;other-ranks")
  endforeach()
endfunction()

# Labels of an entry that has these labels and runs on that many ranks: the sanitizer presets run tests on few ranks.
function(cairn_labels_of_ranks result ranks)
  set(more)
  if("mpi" IN_LIST ARGN AND ranks GREATER_EQUAL 2 AND ranks LESS_EQUAL 3)
    list(APPEND more mpi-small)
    if("any-mpi" IN_LIST ARGN)
      list(APPEND more races)
    endif()
  endif()
  if("fault" IN_LIST ARGN AND ranks LESS_EQUAL 2)
    list(APPEND more errors)
  endif()
  set(${result} "${more}" PARENT_SCOPE)
endfunction()

function(cairn_mpi_test_entry test target ranks labels)
  add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${target}>)
  # scripts/test starts three tests on each processor: ranks wait for each other and for storage more than they work.
  set(processors 1)
  if(ranks GREATER 3)
    set(processors 2)
  endif()
  cairn_labels_of_ranks(more ${ranks} ${labels})
  list(APPEND labels ${more})
  cairn_build_with_label(${target} ${labels})
  set_tests_properties(${test} PROPERTIES LABELS "${labels}" PROCESSORS ${processors})
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "CAIRN_TEST_RANKS=${ranks}")
  cairn_test_environment(${test} "${CAIRN_TEST_RUN_DIR}/${test}")
  cairn_test_leaks(${test})
endfunction()
