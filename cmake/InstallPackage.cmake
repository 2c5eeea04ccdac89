# `cmake --install` gives a package that find_package(onnx_torch) finds. The Python module is a component of its own
# ("python"), and not a part of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_destination "${CMAKE_INSTALL_LIBDIR}/cmake/onnx_torch")
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" torch_minor "${LibTorch_VERSION}")
math(EXPR next_minor "${CMAKE_MATCH_2} + 1")
set(torch_next_minor "${CMAKE_MATCH_1}.${next_minor}")

install(
  TARGETS onnx_torch onnx_torch_kernels onnx_torch_translator
  EXPORT onnx_torchTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp
  INCLUDES
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
set_target_properties(onnx_torch_kernels PROPERTIES EXPORT_NAME kernels)
set_target_properties(onnx_torch_translator PROPERTIES EXPORT_NAME translator)
install(DIRECTORY include/onnx_torch DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT cpp)
install(EXPORT onnx_torchTargets NAMESPACE onnx_torch:: DESTINATION "${package_destination}" COMPONENT cpp)

if(ONNX_TORCH_ONEDNN)
  file(REAL_PATH "${OneDNN_LIBRARY}" onednn_file)
  install(FILES "${onednn_file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" RENAME libdnnl.so.3 COMPONENT cpp)
endif()

if(ONNX_TORCH_HAS_CUDA)
  install(TARGETS onnx_torch_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
endif()

configure_package_config_file(cmake/onnx_torchConfig.cmake.in "${generated_dir}/onnx_torchConfig.cmake"
                              INSTALL_DESTINATION "${package_destination}")
write_basic_package_version_file("${generated_dir}/onnx_torchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${generated_dir}/onnx_torchConfig.cmake" "${generated_dir}/onnx_torchConfigVersion.cmake" cmake/FindLibTorch.cmake
        DESTINATION "${package_destination}" COMPONENT cpp)
