# Writes a header with the revision of the sources, only when it has changed. Run by each build:
#   cmake -DSOURCE=<source tree> -DHEADER=<file> -P CairnGitRevision.cmake
execute_process(COMMAND git -c "safe.directory=${SOURCE}" -C "${SOURCE}" describe --always --dirty --abbrev=12 --match=none
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  set(revision unknown)
endif()
set(text "// Written by the build.\n#pragma once\n\nnamespace cairn::bench {\ninline constexpr const char* kGitRevision = \"${revision}\";\n}\n")
set(old "")
if(EXISTS "${HEADER}")
  file(READ "${HEADER}" old)
endif()
if(NOT text STREQUAL old)
  file(WRITE "${HEADER}" "${text}")
endif()
