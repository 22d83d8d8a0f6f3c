# fuseline_library(NAME common_ir HEADERS a.h … SOURCES a.cc … DEPS … )
#   One static library for one folder, alias fuseline::<name>. Headers are a file set, so that each can be compiled alone.
#   Include paths start at the root of the source tree.
# fuseline_executable(NAME fuseline SOURCES … DEPS … )
#   One program, with the allocator that FuselineFlags chooses.
# fuseline_test(NAME x_test SOURCES … LABELS unit DEPS … [TIMEOUT seconds])
#   One GoogleTest program, one test of CTest, skipped if all its cases are. Labels say what a test needs or what it is for (unit,
#   golden, conformance, e2e, gpu, tools); `concurrent` besides: run under the thread sanitizer as well. Target tests_<label> builds
#   the programs of a label.

# How the sanitizers run: the first finding fails the test; reports from within uninstrumented libraries are suppressed by name.
set(fuseline_sanitizer_options
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/testing/lsan_suppressions.txt:print_suppressions=0"
  "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/testing/tsan_suppressions.txt:second_deadlock_stack=1:halt_on_error=1")
if(NOT FUSELINE_SANITIZE)
  set(fuseline_sanitizer_options "")
endif()

function(fuseline_library)
  cmake_parse_arguments(ARG "" "NAME" "HEADERS;SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fuseline_library(${ARG_NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set(target fuseline_${ARG_NAME})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE fuseline_warnings ${ARG_PRIVATE_DEPS})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(${target} ${scope} fuseline_build_flags ${ARG_DEPS})
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  add_library(fuseline::${ARG_NAME} ALIAS ${target})
endfunction()

function(fuseline_executable)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE fuseline_warnings fuseline_build_flags fuseline_program ${ARG_DEPS})
  # A program lies in the build tree where its main.cc lies in the source tree: build/<preset>/server/fuseline-server.
  foreach(source ${ARG_SOURCES})
    if(source MATCHES "main[.]cc$")
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
    endif()
  endforeach()
endfunction()

function(fuseline_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;LABELS;DEPS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fuseline_test(${ARG_NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LABELS)
    message(FATAL_ERROR "fuseline_test(${ARG_NAME}): no label says what it needs")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(FUSELINE_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE fuseline_warnings fuseline_build_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(FUSELINE_SEMI_STATIC)
    # GPU test programs are carried to another machine too.
    target_link_options(${ARG_NAME} PRIVATE -Wl,--gc-sections -static-libstdc++ -static-libgcc)
  endif()
  target_compile_definitions(${ARG_NAME} PRIVATE FUSELINE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(FUSELINE_SANITIZE MATCHES "thread" AND "concurrent" IN_LIST ARG_LABELS)
    # So that the thread sanitizer sees the locks of Debian's Abseil.
    target_sources(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/testing/tsan_absl_sync.cc)
    target_link_libraries(${ARG_NAME} PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  # A program whose cases were all skipped counts as skipped; a failed case would be listed after the skipped ones.
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${fuseline_sanitizer_options}"
    SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests[.]\n(\\[  SKIPPED \\] [^\n]*\n?)+$")
  foreach(label ${ARG_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${ARG_NAME})
  endforeach()
endfunction()
