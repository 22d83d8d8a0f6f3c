# Flags that every target of ours gets, as interface targets: build flags, warnings, and what a program links besides.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# A compiler cache where there is one and the caller named none.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(FUSELINE_CCACHE ccache)
  if(FUSELINE_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${FUSELINE_CCACHE} CACHE STRING "Runs the compiler")
  endif()
endif()

add_library(fuseline_build_flags INTERFACE)
target_compile_features(fuseline_build_flags INTERFACE cxx_std_20)
if(FUSELINE_SEMI_STATIC)
  # A section for each function and object, so that --gc-sections can drop what a program does not use.
  target_compile_options(fuseline_build_flags INTERFACE -ffunction-sections -fdata-sections)
endif()
if(FUSELINE_SANITIZE)
  # -O1 and line tables only: the tests run at a third of the unoptimised time, and traces still name file and line.
  target_compile_options(fuseline_build_flags INTERFACE
    -fsanitize=${FUSELINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
  target_link_options(fuseline_build_flags INTERFACE -fsanitize=${FUSELINE_SANITIZE})
endif()
option(FUSELINE_FUZZ "Instrument everything for libFuzzer and build the fuzzers with it; needs clang" OFF)
if(FUSELINE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FUSELINE_FUZZ needs clang: use the preset 'fuzz'")
  endif()
  target_compile_options(fuseline_build_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_compile_definitions(fuseline_build_flags INTERFACE FUSELINE_FUZZ)
endif()
if(FUSELINE_COVERAGE)
  target_compile_options(fuseline_build_flags INTERFACE --coverage -O0)
  target_link_options(fuseline_build_flags INTERFACE --coverage)
endif()

# mold links the programs in a tenth of the time. Not for sanitizers or programs to carry elsewhere: the toolchain's own linker there.
find_program(FUSELINE_MOLD mold)
if(FUSELINE_MOLD AND NOT FUSELINE_SANITIZE AND NOT FUSELINE_SEMI_STATIC)
  target_link_options(fuseline_build_flags INTERFACE -fuse-ld=mold)
endif()

add_library(fuseline_warnings INTERFACE)
target_compile_options(fuseline_warnings INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  -Werror=unused-result -Werror=return-type -Werror=switch)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(fuseline_warnings INTERFACE -Wthread-safety)
endif()
if(FUSELINE_WERROR)
  target_compile_options(fuseline_warnings INTERFACE -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 reports std::string's operator+ of its own library (GCC's bug 105651).
    target_compile_options(fuseline_warnings INTERFACE -Wno-restrict)
  endif()
endif()

# What every program links besides its libraries: tcmalloc (FuselineDependencies), since the stock allocator's first touch of large
# fresh blocks is slow enough to dominate tensor messages. Sanitizers bring an allocator of their own.
add_library(fuseline_program INTERFACE)
target_link_options(fuseline_program INTERFACE -Wl,--gc-sections)
if(FUSELINE_SEMI_STATIC)
  target_link_options(fuseline_program INTERFACE -static-libstdc++ -static-libgcc)
endif()
