# oneDNN of the Python packages onnx_torch is built with: onednn-cpu-gomp (the library) and onednn-devel-cpu-gomp (the
# headers) of Python_EXECUTABLE's environment. libtorch holds a oneDNN of its own and exports none of it.
#
#   OneDNN::OneDNN        built with GNU's OpenMP, so that it shares libtorch's threads
#
# Sets OneDNN_FOUND, OneDNN_VERSION and OneDNN_LIBRARY.

if(Python_EXECUTABLE)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import importlib.metadata as m; print(next((f.locate().resolve() for f in m.files('onednn-cpu-gomp') if f.name == 'libdnnl.so.3'), ''), end='')"
    OUTPUT_VARIABLE OneDNN_LIBRARY ERROR_QUIET)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import importlib.metadata as m; print(next((f.locate().resolve().parents[2] for f in m.files('onednn-devel-cpu-gomp') if str(f).endswith('oneapi/dnnl/dnnl.hpp')), ''), end='')"
    OUTPUT_VARIABLE OneDNN_INCLUDE_DIR ERROR_QUIET)
endif()

if(EXISTS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" version_lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]" "" OneDNN_VERSION "${version_lines}")
  string(REPLACE ";" "." OneDNN_VERSION "${OneDNN_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OneDNN
  REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
  VERSION_VAR OneDNN_VERSION HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE
    "Install it in the environment of ${Python_EXECUTABLE}:
  python -m pip install onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0")

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN SHARED IMPORTED GLOBAL)
  set_target_properties(OneDNN::OneDNN PROPERTIES IMPORTED_LOCATION "${OneDNN_LIBRARY}")
  target_include_directories(OneDNN::OneDNN SYSTEM INTERFACE "${OneDNN_INCLUDE_DIR}")
endif()
