#include "runtime/tf32.h"

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
using Precisions = std::array<Float32Precision, kOperators.size()>;

Precisions found() {
  Precisions precisions{};
  for (size_t i = 0; i < kOperators.size(); ++i) {
    precisions[i] = at::globalContext().float32Precision(Float32Backend::CUDA, kOperators[i]);
  }
  return precisions;
}

// Leaves alone what is so already: an operator that is set inherits no more from what is set for all.
void set(const Precisions& wanted) {
  const Precisions now = found();
  for (size_t i = 0; i < kOperators.size(); ++i) {
    if (now[i] != wanted[i]) at::globalContext().setFloat32Precision(Float32Backend::CUDA, kOperators[i], wanted[i]);
  }
}

Precisions as_asked(bool tf32) {
  Precisions precisions = found();
  for (Float32Precision& precision : precisions) {
    if (tf32) precision = Float32Precision::TF32;
    if (!tf32 && precision != Float32Precision::NONE) precision = Float32Precision::IEEE;
  }
  return precisions;
}

struct Living {
  std::mutex mutex;
  std::vector<const Tf32Setting*> settings;
  Precisions before{};
};

Living& living() {
  static Living all;
  return all;
}

}  // namespace

Tf32Setting::Tf32Setting(bool allowed) : allowed_(allowed) {
  Living& all = living();
  const std::lock_guard lock(all.mutex);
  if (all.settings.empty()) all.before = found();
  all.settings.push_back(this);
  set(as_asked(allowed));
}

Tf32Setting::~Tf32Setting() {
  Living& all = living();
  const std::lock_guard lock(all.mutex);
  std::erase(all.settings, this);
  set(all.settings.empty() ? all.before : as_asked(all.settings.back()->allowed_));
}

}  // namespace onnxtorch
