#include "runtime/cuda_settings.h"

#include <ATen/Context.h>

#include <array>
#include <mutex>
#include <vector>

namespace onnxtorch {
namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

constexpr std::array kOperators = {Float32Op::CONV, Float32Op::RNN, Float32Op::MATMUL};

struct Settings {
  std::array<Float32Precision, kOperators.size()> precisions{};
  bool cudnn_attention = false;
};

Settings found() {
  Settings settings{.cudnn_attention = at::globalContext().userEnabledCuDNNSDP()};
  for (size_t i = 0; i < kOperators.size(); ++i) {
    settings.precisions[i] = at::globalContext().float32Precision(Float32Backend::CUDA, kOperators[i]);
  }
  return settings;
}

// Sets only what differs, since an operator that is set no longer inherits from what is set for all.
void set(const Settings& wanted) {
  const Settings now = found();
  for (size_t i = 0; i < kOperators.size(); ++i) {
    const Float32Precision precision = wanted.precisions[i];
    if (now.precisions[i] == precision) continue;
    at::globalContext().setFloat32Precision(Float32Backend::CUDA, kOperators[i], precision);
  }
  at::globalContext().setSDPUseCuDNN(wanted.cudnn_attention);
}

// Gives the settings that a model asks for. They leave cuDNN's attention out, as cuDNN does not say what that makes of
// scores without a bound, and of rows that are masked as a whole.
Settings as_asked(bool tf32) {
  Settings settings = found();
  for (Float32Precision& precision : settings.precisions) {
    if (tf32) precision = Float32Precision::TF32;
    if (!tf32 && precision != Float32Precision::NONE) precision = Float32Precision::IEEE;
  }
  settings.cudnn_attention = false;
  return settings;
}

struct Living {
  std::mutex mutex;
  std::vector<const CudaSettings*> settings;
  Settings before;
};

Living& living() {
  static Living all;
  return all;
}

}  // namespace

CudaSettings::CudaSettings(bool tf32) : tf32_(tf32) {
  Living& all = living();
  const std::lock_guard lock(all.mutex);
  if (all.settings.empty()) all.before = found();
  all.settings.push_back(this);
  set(as_asked(tf32));
}

CudaSettings::~CudaSettings() {
  Living& all = living();
  const std::lock_guard lock(all.mutex);
  std::erase(all.settings, this);
  set(all.settings.empty() ? all.before : as_asked(all.settings.back()->tf32_));
}

}  // namespace onnxtorch
