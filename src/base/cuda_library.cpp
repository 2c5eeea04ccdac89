#include "base/cuda_library.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <filesystem>

namespace onnxtorch {
namespace {

// Gives the path of a file in the folder of the library that a function is in.
std::filesystem::path beside(const void* function, const char* name) {
  Dl_info found{};
  TORCH_CHECK(dladdr(function, &found) != 0, "a library of onnx_torch or torch has no file");
  return std::filesystem::path(found.dli_fname).replace_filename(name);
}

bool load(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return false;
  TORCH_CHECK(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), file.filename().string(), " cannot be loaded: ", dlerror());
  return true;
}

// Makes CUDA's hooks. ATen asks for them once, be it in a convolution on the CPU, and takes a process that has none
// then for one without CUDA, for ever. So where a GPU may be, it gets the true ones, for which their library is loaded.
std::unique_ptr<at::CUDAHooksInterface> hooks_when_asked(at::CUDAHooksArgs args) {
  try {
    if (has_cuda_driver() && load_torch_cuda()) return at::CUDAHooksRegistry()->Create("CUDAHooks", args);
  } catch (const c10::Error& error) {
    TORCH_WARN("This process goes on without CUDA: ", error.what_without_backtrace());
  }
  return std::make_unique<at::CUDAHooksInterface>();
}

// This entry stands in the registry until the library is loaded, which puts its own in this place.
[[maybe_unused]] const bool registered = [] {
  if (at::CUDAHooksRegistry()->Has("CUDAHooks")) return false;
  at::CUDAHooksRegistry()->Register("CUDAHooks", hooks_when_asked, c10::REGISTRY_FALLBACK);
  return true;
}();

}  // namespace

bool has_cuda_driver() {
  static const bool found = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return found;
}

bool load_torch_cuda() {
  static const bool loaded = load(beside(reinterpret_cast<const void*>(&at::detail::getCUDAHooks), "libtorch_cuda.so"));
  return loaded;
}

void load_cuda_kernels() {
  [[maybe_unused]] static const bool loaded =
      load(beside(reinterpret_cast<const void*>(&load_cuda_kernels), "libonnx_torch_cuda.so"));
}

}  // namespace onnxtorch
