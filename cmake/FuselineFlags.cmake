# Flags that every target of ours gets, as interface targets: build flags, warnings, and what a program links besides.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(fuseline_build_flags INTERFACE)
target_compile_features(fuseline_build_flags INTERFACE cxx_std_20)
if(FUSELINE_SANITIZE)
  target_compile_options(fuseline_build_flags INTERFACE -fsanitize=${FUSELINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(fuseline_build_flags INTERFACE -fsanitize=${FUSELINE_SANITIZE})
endif()

add_library(fuseline_warnings INTERFACE)
target_compile_options(fuseline_warnings INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  -Werror=unused-result -Werror=return-type -Werror=switch)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(fuseline_warnings INTERFACE -Wthread-safety)
endif()
if(FUSELINE_WERROR)
  target_compile_options(fuseline_warnings INTERFACE -Werror)
endif()

# What every program links besides its libraries: tcmalloc, since the stock allocator's first touch of large fresh blocks
# is slow enough to dominate tensor messages. Sanitizers bring an allocator of their own.
add_library(fuseline_program INTERFACE)
target_link_options(fuseline_program INTERFACE -Wl,--gc-sections)
if(FUSELINE_SEMI_STATIC)
  target_link_options(fuseline_program INTERFACE -static-libstdc++ -static-libgcc)
endif()
