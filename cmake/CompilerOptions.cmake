# Language level, warnings, ccache and linker, for every target of the project.

option(ONNX_TORCH_WERROR "Treat warnings as errors" OFF)
option(ONNX_TORCH_CCACHE "Compile through ccache where it is installed" ON)
set(ONNX_TORCH_SANITIZE "" CACHE STRING "Sanitizers to compile with, such as address,undefined (docs/fuzzing.md)")
option(ONNX_TORCH_LIBFUZZER "Build the fuzzers that follow coverage, by libFuzzer (docs/fuzzing.md)" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)  # of this project alone, where it is a part of another
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(onnx_torch_options INTERFACE)
target_compile_options(onnx_torch_options INTERFACE -Wall -Wextra -Wshadow $<$<BOOL:${ONNX_TORCH_WERROR}>:-Werror>)

if(ONNX_TORCH_SANITIZE)
  # torch's types are hidden in part, and not compiled with them. What is found ends the process, which the fuzzer notices.
  add_compile_options("-fsanitize=${ONNX_TORCH_SANITIZE}" -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${ONNX_TORCH_SANITIZE}")
endif()

# Which code an input reaches is told by what Clang adds for it; GCC has less, of which tests/fuzz/coverage.cpp makes enough.
if(ONNX_TORCH_LIBFUZZER AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-fsanitize=fuzzer-no-link)
elseif(ONNX_TORCH_LIBFUZZER)
  add_library(onnx_torch_fuzz_coverage STATIC tests/fuzz/coverage.cpp)
  add_compile_options(-fsanitize-coverage=trace-pc)
  link_libraries(onnx_torch_fuzz_coverage)
endif()

if(ONNX_TORCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE_EXECUTABLE ccache)
  if(CCACHE_EXECUTABLE)
    # What ccache asks for to cache precompiled headers, and to share results between checkouts.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${CCACHE_EXECUTABLE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_compile_options(onnx_torch_options INTERFACE -fpch-preprocess)
    endif()
  endif()
endif()

# The linker is the compiler's own: lld 14 lets the frame of an empty function hide that of the next one, and an exception that
# passes there ends the process.
