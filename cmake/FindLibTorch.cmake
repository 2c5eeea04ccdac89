# Imported targets from a torch wheel, or an unpacked LibTorch. Needs neither torch's own CMake package nor a CUDA toolkit.
#
#   LibTorch::c10, LibTorch::torch_cpu, LibTorch::torch
#   LibTorch::torch_python, LibTorch::c10_cuda, LibTorch::torch_cuda   where the wheel has them
#   LibTorch::cuda_headers                                             CUDA's host headers, from the wheel's dependencies
#   LibTorch::OpenMP                                                   -fopenmp, with the OpenMP runtime that torch itself loads
#   LibTorch::LibTorch                                                 what a C++ program links: all of it, CUDA included
#
# It is, in this order: LibTorch_ROOT_DIR; that of a given Torch_DIR; that of Python_EXECUTABLE; one in Torch_ROOT or
# CMAKE_PREFIX_PATH (as torch.utils.cmake_prefix_path says, or an unpacked LibTorch); LibTorch_LAST_RESORT; that of the
# python3 in the PATH.
#
# Sets LibTorch_FOUND, LibTorch_VERSION, LibTorch_HAS_CUDA, LibTorch_CUDA_VERSION ("13.2", where it is told),
# LibTorch_ROOT_DIR and LibTorch_LIBRARY_DIR.

function(libtorch_root_of_python python)
  execute_process(
    COMMAND "${python}" -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
    OUTPUT_VARIABLE root ERROR_QUIET)
  set(LibTorch_ROOT_DIR "${root}" PARENT_SCOPE)
endfunction()

if(NOT LibTorch_ROOT_DIR AND Torch_DIR)
  cmake_path(ABSOLUTE_PATH Torch_DIR OUTPUT_VARIABLE LibTorch_ROOT_DIR)
  cmake_path(SET LibTorch_ROOT_DIR NORMALIZE "${LibTorch_ROOT_DIR}/../../..")
endif()
if(NOT LibTorch_ROOT_DIR AND Python_EXECUTABLE)
  libtorch_root_of_python("${Python_EXECUTABLE}")
endif()
if(NOT LibTorch_ROOT_DIR)
  cmake_path(CONVERT "$ENV{CMAKE_PREFIX_PATH}" TO_CMAKE_PATH_LIST prefixes)
  foreach(prefix IN LISTS Torch_ROOT CMAKE_PREFIX_PATH prefixes LibTorch_LAST_RESORT)
    foreach(root "${prefix}" "${prefix}/../..")
      if(NOT LibTorch_ROOT_DIR AND EXISTS "${root}/lib/libtorch_cpu.so")
        cmake_path(SET LibTorch_ROOT_DIR NORMALIZE "${root}")
      endif()
    endforeach()
  endforeach()
endif()
if(NOT LibTorch_ROOT_DIR)
  find_program(python3 NAMES python3 python NO_CACHE)
  if(python3)
    libtorch_root_of_python("${python3}")
  endif()
endif()

set(LibTorch_VERSION "")
foreach(file version.py build-version)
  if(NOT LibTorch_VERSION AND EXISTS "${LibTorch_ROOT_DIR}/${file}")
    file(STRINGS "${LibTorch_ROOT_DIR}/${file}" version_line REGEX "^(__version__|[0-9])")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${version_line}")
  endif()
endforeach()
set(LibTorch_CUDA_VERSION "")
foreach(file version.py build-version)
  if(NOT LibTorch_CUDA_VERSION AND EXISTS "${LibTorch_ROOT_DIR}/${file}")
    file(STRINGS "${LibTorch_ROOT_DIR}/${file}" cuda_line REGEX "^cuda.*'[0-9.]+'$|^[0-9.]+[+]cu[0-9]+$")
    if(cuda_line MATCHES "'([0-9]+[.][0-9]+)")
      set(LibTorch_CUDA_VERSION "${CMAKE_MATCH_1}")
    elseif(cuda_line MATCHES "[+]cu([0-9]+)([0-9])$")
      set(LibTorch_CUDA_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    endif()
  endif()
endforeach()
set(LibTorch_INCLUDE_DIR "${LibTorch_ROOT_DIR}/include")
set(LibTorch_LIBRARY_DIR "${LibTorch_ROOT_DIR}/lib")

function(libtorch_import name)
  find_library(library ${name} PATHS "${LibTorch_LIBRARY_DIR}" NO_DEFAULT_PATH NO_CACHE)
  if(library AND NOT TARGET LibTorch::${name})
    add_library(LibTorch::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${library}")
    target_link_libraries(LibTorch::${name} INTERFACE ${ARGN})
  endif()
endfunction()

if(LibTorch_VERSION)
  libtorch_import(c10)
  libtorch_import(torch_cpu LibTorch::c10)
  libtorch_import(torch LibTorch::torch_cpu)
  libtorch_import(torch_python LibTorch::torch)
  libtorch_import(c10_cuda LibTorch::c10)
  libtorch_import(torch_cuda LibTorch::torch_cpu)
endif()

set(LibTorch_HAS_CUDA OFF)
if(TARGET LibTorch::torch_cuda)
  set(LibTorch_HAS_CUDA ON)
endif()

set(LibTorch_COMPLETE OFF)
if(TARGET LibTorch::c10 AND TARGET LibTorch::torch_cpu AND TARGET LibTorch::torch)
  set(LibTorch_COMPLETE ON)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_ROOT_DIR LibTorch_COMPLETE
  VERSION_VAR LibTorch_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE
    "No fitting torch (in '${LibTorch_ROOT_DIR}', for the Python interpreter '${Python_EXECUTABLE}').
  Install one there (python -m pip install 'torch==2.15.*'), activate the virtual environment that has it,
  or choose another interpreter with -DPython_EXECUTABLE=...")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  # System headers: the wheel's headers are not warning-clean.
  target_include_directories(LibTorch::c10 SYSTEM INTERFACE "${LibTorch_INCLUDE_DIR}")
  target_include_directories(LibTorch::torch_cpu SYSTEM INTERFACE "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")

  file(GLOB cuda_headers "${LibTorch_ROOT_DIR}/../nvidia/cu[0-9]*/include")
  if(cuda_headers)
    add_library(LibTorch::cuda_headers INTERFACE IMPORTED GLOBAL)
    target_include_directories(LibTorch::cuda_headers SYSTEM INTERFACE ${cuda_headers})
  endif()

  # at::parallel_for is a header template: parallel only in files compiled with OpenMP. The runtime must be the one
  # that libtorch_cpu loads, or a process holds two thread pools.
  add_library(LibTorch::OpenMP INTERFACE IMPORTED GLOBAL)
  file(GLOB gomp "${LibTorch_LIBRARY_DIR}/libgomp*.so*" "${LibTorch_ROOT_DIR}/../torch.libs/libgomp*.so*")
  if(gomp)
    list(GET gomp 0 gomp)
    add_library(LibTorch::gomp SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::gomp PROPERTIES IMPORTED_LOCATION "${gomp}")
    target_compile_options(LibTorch::OpenMP INTERFACE -fopenmp)
    target_link_libraries(LibTorch::OpenMP INTERFACE LibTorch::gomp)
    # What Clang compiles calls Clang's own runtime, which is then there beside torch's.
    target_link_options(LibTorch::OpenMP INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fopenmp>)
  else()
    find_package(OpenMP REQUIRED)
    target_link_libraries(LibTorch::OpenMP INTERFACE OpenMP::OpenMP_CXX)
  endif()

  # Operators register themselves when their library is loaded and are found by name, so the libraries that hold them
  # must be loaded though nothing refers to their symbols: libtorch.so is there only to load libtorch_cuda.so. And torch's
  # OpenMP runtime, or that of the system would be found first.
  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(LibTorch::LibTorch INTERFACE LibTorch::torch $<TARGET_NAME_IF_EXISTS:LibTorch::gomp>)
  target_link_options(LibTorch::LibTorch INTERFACE LINKER:--no-as-needed)
endif()
