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

# Arguments of the function that calls this: ARG_<KEYWORD>. A keyword may come again: its words add up.
macro(cairn_arguments flags single several)
  cmake_parse_arguments(ARG "${flags}" "${single}" "${several}" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
endmacro()

# cairn_layer(NAME base SOURCES a.cpp ... [LAYERS lower layers ...] [LIBS external ...] [PRIVATE_LIBS external ...])
# makes the static library cairn_<NAME> with alias cairn::<NAME>. Includes are written "layer/file.hpp".
# Only targets that link single layers need these archives: they are not part of `all` themselves.
function(cairn_layer)
  cairn_arguments("" "NAME" "SOURCES;LAYERS;LIBS;PRIVATE_LIBS" ${ARGN})
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
  cairn_arguments("" "NAME" "SOURCES;LIBS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE cairn_options ${ARG_LIBS})
  cairn_library_code(${ARG_NAME})
  cairn_use_precompiled(${ARG_NAME} cairn_precompiled)
endfunction()

# The target tests-<label> builds the programs of the tests with that label. Labels that decide which row
# of scripts/test runs a test: ranks, mpi-small and races (below), any-mpi (code that depends on the MPI
# implementation), errors (runs through many error paths quickly: also under the address sanitizer),
# without-cuda (of a layer that has another source without CUDA), long (scripts/test --long only).
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

# cairn_test_entry(waits_save COMMAND program argument LABELS fault [ENVIRONMENT A=1 ...] [PROPERTIES PROCESSORS 2 ...])
# One entry of CTest, which starts in a folder of its own. The property COST is about the seconds that it takes, where
# these are many: CTest begins with those, so that no long one is left alone at the end.
function(cairn_test_entry test)
  cairn_arguments("" "" "COMMAND;LABELS;ENVIRONMENT;PROPERTIES" ${ARGN})
  set(environment
    "CAIRN_TEST_DATA=${PROJECT_SOURCE_DIR}/tests/data"
    "CAIRN_BIN_DIR=${PROJECT_BINARY_DIR}/bin"
    "OMPI_MCA_rmaps_base_oversubscribe=1"
    "OMPI_ALLOW_RUN_AS_ROOT=1" "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    "OMPI_MCA_mpi_yield_when_idle=1" "OMPI_MCA_hwloc_base_binding_policy=none"
    "ASAN_OPTIONS=detect_leaks=0"
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1")
  if(CAIRN_SANITIZER STREQUAL "thread")
    # UCX takes a lock in the madvise with which glibc frees the stack of a thread;
    # for the sanitizer that thread has ended, and so it crashes.
    list(APPEND environment "UCX_MEM_EVENTS=no")
  endif()
  list(APPEND environment ${ARG_ENVIRONMENT})
  set(folder "${PROJECT_BINARY_DIR}/test-run/${test}")
  file(MAKE_DIRECTORY "${folder}")
  add_test(NAME ${test} COMMAND ${ARG_COMMAND})
  set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${environment}"
                       WORKING_DIRECTORY "${folder}" ${ARG_PROPERTIES})
endfunction()

# GoogleTest programs are checked for leaks. `cairn` itself and other programs that end with MPI are not:
# MPI's leaks cannot be told from ours once its libraries are unloaded (tests/support/mpi_main.cpp checks before that).
# The check does not follow __tls_get_addr: GCC 12 mistakes a thread-local block that begins 16 bytes into a page
# for one with a header of an older glibc, and the search for leaks ends in a fault ("Tracer caught signal 11").
set(CAIRN_FIND_LEAKS "ASAN_OPTIONS=detect_leaks=1:intercept_tls_get_addr=0"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/leaks.supp:print_suppressions=0")
# Files of tests that save hundreds of times, with some twenty fsyncs each: in memory where there is /dev/shm.
set(CAIRN_IN_MEMORY "CAIRN_TEST_TMP=/dev/shm")

# cairn_add_test(NAME format SOURCES a_test.cpp ... LIBS cairn::format [LABELS unit] [ENVIRONMENT ...] [PROPERTIES ...])
# One GoogleTest program without MPI, one ctest entry. Those of layers that know ranks (threads, here) are also labelled
# ranks: what the thread sanitizer is for.
function(cairn_add_test)
  cairn_arguments("" "NAME" "SOURCES;LIBS;LABELS;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(ARG_LIBS MATCHES "cairn::(comm|io|planning|root|opening|codes|checkpoint|life|conversion)(;|$)")
    list(APPEND ARG_LABELS ranks)
  endif()
  set(target test_${ARG_NAME})
  add_executable(${target} ${ARG_SOURCES})
  cairn_test_program(${target} ${ARG_LABELS})
  target_link_libraries(${target} PRIVATE cairn_options ${ARG_LIBS} cairn_test_main GTest::gtest GTest::gmock)
  cairn_use_precompiled(${target} cairn_precompiled_tests)
  cairn_test_entry(${ARG_NAME} COMMAND ${target} LABELS ${ARG_LABELS}
                   ENVIRONMENT ${CAIRN_FIND_LEAKS} ${ARG_ENVIRONMENT} PROPERTIES ${ARG_PROPERTIES})
endfunction()

# cairn_add_mpi_test(NAME comm SOURCES ... LIBS ... RANKS 1 2 4 7 [IN_MEMORY 2] [LONG 4] [LABELS mpi] [ENVIRONMENT ...])
# One GoogleTest program on MPI; one ctest entry per rank count, one per count of IN_MEMORY with its files in /dev/shm,
# and one labelled long and other-ranks per count of LONG: counts that take the same paths as others, of which
# scripts/test draws two every time. The main of tests/support/mpi_main.cpp fails when the launcher started another
# number of ranks than the entry says. Entries labelled mpi on 2 and 3 ranks are also labelled mpi-small, and races when
# they are labelled any-mpi; those labelled fault on up to 2 ranks are labelled errors: what the sanitizer presets run.
function(cairn_add_mpi_test)
  cairn_arguments("" "NAME" "SOURCES;LIBS;LABELS;RANKS;IN_MEMORY;LONG;ENVIRONMENT" ${ARGN})
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
    cairn_mpi_test_entry(${ARG_NAME}.np${ranks} ${target} ${ranks} "${ARG_LABELS}" ${ARG_ENVIRONMENT})
  endforeach()
  foreach(ranks IN LISTS ARG_IN_MEMORY)
    cairn_mpi_test_entry(${ARG_NAME}_in_memory.np${ranks} ${target} ${ranks} "${ARG_LABELS}" ${ARG_ENVIRONMENT}
                         ${CAIRN_IN_MEMORY})
  endforeach()
  foreach(ranks IN LISTS ARG_LONG)
    cairn_mpi_test_entry(${ARG_NAME}_long.np${ranks} ${target} ${ranks} "long;other-ranks" ${ARG_ENVIRONMENT})
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

# cairn_mpi_test_entry(limits_long.np3 mpi_test_limits 3 "mpi;any-mpi" [VARIABLE=value ...])
function(cairn_mpi_test_entry test target ranks labels)
  # scripts/test starts three tests per processor: ranks mostly wait for each other and for storage.
  set(processors 1)
  if(ranks GREATER 3)
    set(processors 2)
  endif()
  cairn_labels_of_ranks(more ${ranks} ${labels})
  list(APPEND labels ${more})
  cairn_build_with_label(${target} ${labels})
  cairn_test_entry(${test} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${target}>
                   LABELS ${labels} PROPERTIES PROCESSORS ${processors}
                   ENVIRONMENT "CAIRN_TEST_RANKS=${ranks}" ${CAIRN_FIND_LEAKS} ${ARGN})
endfunction()

# cairn_add_script_test(NAME cli.usage LABELS cli [SCRIPT usage_test.py] [START run_in_venv.py] [MPI] [ARGS --kills 5]
#                       [LONG_ARGS --kills 900] [RANKS 1 3] [LONG 4] [ENVIRONMENT ...] [PROPERTIES ...])
# A script of this folder and its entry. The last part of NAME names the script, unless SCRIPT does. START: a command that
# starts the script in place of Python. MPI: CAIRN_MPIEXEC tells the script how to start ranks. LONG_ARGS: a second entry,
# <NAME>_long, with these arguments and the label long. RANKS and LONG: an entry for each count, which the script is given as
# --ranks; those of LONG have the labels long and other-ranks.
function(cairn_add_script_test)
  cairn_arguments("MPI" "NAME;SCRIPT" "START;ARGS;LONG_ARGS;RANKS;LONG;LABELS;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(NOT ARG_SCRIPT)
    string(REGEX REPLACE "(.*\\.)?(.+)" "\\2_test.py" ARG_SCRIPT "${ARG_NAME}")
  endif()
  get_filename_component(script "${ARG_SCRIPT}" ABSOLUTE)
  if(NOT ARG_START)
    set(ARG_START Python3::Interpreter)
  endif()
  if(ARG_MPI)
    list(APPEND ARG_ENVIRONMENT "CAIRN_MPIEXEC=${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG}")
  endif()
  set(start ENVIRONMENT ${ARG_ENVIRONMENT} PROPERTIES ${ARG_PROPERTIES} COMMAND ${ARG_START} "${script}")
  foreach(ranks IN LISTS ARG_RANKS)
    cairn_test_entry(${ARG_NAME}.np${ranks} ${start} ${ARG_ARGS} --ranks ${ranks} LABELS ${ARG_LABELS})
  endforeach()
  foreach(ranks IN LISTS ARG_LONG)
    cairn_test_entry(${ARG_NAME}.np${ranks} ${start} ${ARG_ARGS} --ranks ${ranks} LABELS long other-ranks)
  endforeach()
  if(NOT ARG_RANKS)
    cairn_test_entry(${ARG_NAME} ${start} ${ARG_ARGS} LABELS ${ARG_LABELS})
  endif()
  if(ARG_LONG_ARGS)
    cairn_test_entry(${ARG_NAME}_long ${start} ${ARG_LONG_ARGS} LABELS long)
  endif()
endfunction()
