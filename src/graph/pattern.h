// Patterns in graphs, written in TorchScript's own notation and replaced by what a function makes of each place found.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "graph/constants.h"
#include "graph/program.h"

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace onnxtorch {

// A place where a pattern fits.
class Found {
 public:
  Found(const Constants& known, std::unordered_map<std::string, torch::jit::Value*> values)
      : constants(known), values_(std::move(values)) {}

  // Gives the graph's value for one that the pattern names.
  torch::jit::Value* operator[](const std::string& name) const { return values_.at(name); }

  // Tells whether that value is this number (and not an array that holds it, which may add dimensions to a result).
  bool is(const std::string& name, double number) const;

  // Tells whether a dimension is known to be the last of the tensor's.
  bool is_last(const std::string& dim, const std::string& tensor) const;

  const Constants& constants;

 private:
  std::unordered_map<std::string, torch::jit::Value*> values_;
};

// A function that computes the result in another way, at the graph's insertion point; null leaves the place as it is.
using Replace = std::function<torch::jit::Value*(const Found& found, torch::jit::Graph& graph)>;

// Replaces each place where the pattern fits and whose inner values nothing else uses. The places must be in the order
// of sort_operands. Tells whether there was one.
bool rewrite(Program& program, const std::string& pattern, const Replace& replace);

// Visits the nodes that compute the same as the pattern's result. The pattern may hold blocks, whose nodes must be in
// the same order, and constants, which must have the same values.
void for_each_place(Program& program, const std::string& pattern,
                    const std::function<void(torch::jit::Node* node, const Found& found)>& visit);

// Puts the operands of additions and products into one order, so that a pattern need not be written for each: the
// operand that takes more steps to compute comes first, a constant last.
void sort_operands(Program& program);

}  // namespace onnxtorch
