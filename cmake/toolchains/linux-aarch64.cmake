# Compiles for Linux on ARM64 with the distribution's cross compiler (Debian: g++-aarch64-linux-gnu, qemu-user).
# ONNX_TORCH_SYSROOT is a folder with that system's libraries and headers, and Python's.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ONNX_TORCH_SYSROOT)

set(CMAKE_SYSROOT "${ONNX_TORCH_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${ONNX_TORCH_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${ONNX_TORCH_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${ONNX_TORCH_SYSROOT}/usr/share/pkgconfig")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${ONNX_TORCH_SYSROOT}")
