// The values of a graph that are views of others: by reshapes, permutations and broadcasts, as one movement each.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/constants.h"
#include "graph/movement.h"
#include "graph/writes.h"

namespace onnxtorch {

// Gives what is known of a tensor's sizes; nothing where not even their number is.
std::optional<std::vector<int64_t>> sizes_of(const torch::jit::Value* value);

// Tells whether the result has the elements of the first operand, in some order and some number of dimensions.
bool is_view(const torch::jit::Node* node);

// A value as a view of another, in so many steps.
struct View {
  torch::jit::Value* of;
  Movement movement;
  size_t steps;
  size_t own_steps;  // the steps that nothing else needs
};

class Views {
 public:
  Views(const Constants& constants, const Writers& writers) : constants_(constants), writers_(writers) {}

  // Gives the value as a view of each value that it is one of, the farthest first.
  std::vector<View> of(torch::jit::Value* value) const;

 private:
  std::optional<Movement> followed(const Movement& movement, const torch::jit::Node* node) const;

  const Constants& constants_;
  const Writers& writers_;
};

}  // namespace onnxtorch
