// The caller's memory for results, and the part of it that a run may write to while it goes on.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/grown_in_place.h"
#include "graph/program.h"

namespace onnxtorch {

// A tensor for each result, undefined where there is none.
using Targets = std::vector<at::Tensor>;

// A result that begins with an input's elements, which nothing but its operator reads: both by their indices.
struct Growth {
  size_t input, result;
};

std::vector<Growth> growths_of(const Program& program);

// The targets that a run may write to: those in which no input lies, and no other target; and those that lie where an
// input does that grows to them, which has their strides.
struct Lent {
  Targets targets;
  std::vector<Grown> grown;
};

Lent lent(Targets targets, std::span<const c10::IValue> inputs, std::span<const Growth> growths);

}  // namespace onnxtorch
