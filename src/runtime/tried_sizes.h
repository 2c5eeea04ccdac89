// The sizes of a model's inputs for which what was learnt of open dimensions is known to hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fork_safe.h"
#include "graph/program.h"
#include "onnx_torch/types.h"
#include "runtime/fed.h"

namespace onnxtorch {

using SizeRanges = std::vector<std::vector<SizeRange>>;  // one for each input; empty where no size of it is known

class TriedSizes {
 public:
  // Takes the ranges that were tried. Dimensions of one name were tried with one size.
  TriedSizes(SizeRanges ranges, std::span<const InputSpec> inputs);

  bool cover(const FedInputs& feeds) const;

  // Takes in other sizes.
  void extend(SizeRanges ranges);

  // Leaves out the sizes that are fed, for which what was learnt does not hold.
  void exclude(const FedInputs& feeds);

 private:
  struct Dimension {
    size_t input, dim;
  };
  using Sizes = std::vector<std::vector<int64_t>>;  // those of each input
  bool agree(const FedInputs& feeds) const;

  std::vector<std::vector<Dimension>> of_one_name_;
  mutable ForkSafeMutex mutex_;
  std::vector<SizeRanges> ranges_;
  std::vector<Sizes> excluded_;
};

// Gives the sizes that are fed, for each of the inputs that `known` has sizes of.
std::vector<std::vector<int64_t>> sizes_of(const FedInputs& feeds, const SizeRanges& known);

}  // namespace onnxtorch
