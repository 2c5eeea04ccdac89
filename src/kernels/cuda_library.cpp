#include "kernels/cuda_library.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <filesystem>

namespace onnxtorch {
namespace {

std::filesystem::path own_file() {
  Dl_info found{};
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&load_cuda_kernels), &found) != 0,
              "onnx_torch's library has no file");
  return found.dli_fname;
}

bool load() {
  const std::filesystem::path file = own_file().replace_filename("libonnx_torch_cuda.so");
  if (!std::filesystem::exists(file)) return false;
  TORCH_CHECK(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), "onnx_torch's CUDA kernels cannot be loaded: ", dlerror());
  return true;
}

}  // namespace

void load_cuda_kernels() { [[maybe_unused]] static const bool loaded = load(); }

}  // namespace onnxtorch
