#include "runtime/devices.h"

#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/cuda_library.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

std::atomic<int> assumed_devices = 0;

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Gives the index of the device that "cuda" (0) or "cuda:1" names; none where it is no number.
std::optional<int> cuda_index(std::string_view name) {
  name.remove_prefix(std::string_view("cuda").size());
  if (name.empty()) return 0;
  name.remove_prefix(1);
  int index = 0;
  const char* const end = name.data() + name.size();
  const auto [parsed, error] = std::from_chars(name.data(), end, index);
  if (error == std::errc() && parsed == end && index >= 0) return index;
  return {};
}

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

// Says why this process sees no CUDA device.
std::string why_none() {
  if (!has_cuda_driver()) return "Found no NVIDIA driver on this machine (libcuda.so.1)";
  if (!load_torch_cuda()) return "the torch that is installed is built without CUDA";
  try {
    at::detail::getCUDAHooks().init();  // throws an error that says what is wrong with the driver
  } catch (const c10::Error& error) {
    return first_line(error);
  }
  return "this process sees no CUDA device";
}

c10::Device available_cuda_device(const std::string& name, int index) {
  const int count = cuda_device_count();
  if (count == 0) throw DeviceError("the device " + name + " is not there: " + why_none());
  if (index >= count) {
    throw DeviceError("the device " + name + " is not there: this process sees " + std::to_string(count) +
                      (count == 1 ? " CUDA device" : " CUDA devices") + ", and the first is CUDA:0");
  }
  load_cuda_kernels();
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

void assume_cuda_devices(int count) { assumed_devices = count; }

int cuda_device_count() {
  if (const int assumed = assumed_devices) return assumed;
  return has_cuda_driver() && load_torch_cuda() ? at::detail::getCUDAHooks().deviceCount() : 0;
}

c10::Device available_device(const std::string& name) {
  const std::string lower = lower_case(name);
  if (lower == "cpu" || lower.starts_with("cpu:")) return at::kCPU;
  if (lower != "cuda" && !lower.starts_with("cuda:"))
    throw DeviceError("the device " + name + " is not supported; there are CPU and CUDA:n");
  const auto index = cuda_index(lower);
  if (!index) throw DeviceError("\"" + name + "\" is not a device; write \"CUDA\" or \"CUDA:0\"");
  try {
    return available_cuda_device(name, *index);
  } catch (const c10::Error& error) {
    throw DeviceError("the device " + name + " cannot be used: " + first_line(error));
  }
}

}  // namespace onnxtorch
