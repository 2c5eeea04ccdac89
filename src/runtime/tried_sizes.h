// The sizes of a model's inputs for which what was learnt of open dimensions is known to hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fork_safe.h"
#include "onnx_torch/types.h"
#include "runtime/fed.h"

namespace onnxtorch {

using InputSizes = std::vector<std::vector<int64_t>>;  // of each input; none where no size of it is known

class TriedSizes {
 public:
  // What is alike for sizes of 1 and for these is alike for all between. Dimensions of one name were tried with one
  // size.
  TriedSizes(InputSizes largest, std::span<const InputSpec> inputs);

  bool cover(const FedInputs& feeds) const;

  // Takes in larger sizes.
  void extend(InputSizes largest);

 private:
  struct Dimension {
    size_t input, dim;
  };
  bool agree(const FedInputs& feeds) const;

  std::vector<std::vector<Dimension>> of_one_name_;
  mutable ForkSafeMutex mutex_;
  std::vector<InputSizes> largest_;
};

// The sizes that are fed, for each of the inputs that `known` has sizes of.
InputSizes sizes_of(const FedInputs& feeds, const InputSizes& known);

}  // namespace onnxtorch
