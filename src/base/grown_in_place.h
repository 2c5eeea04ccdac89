// Results that begin with what an input holds, such as a cache with new rows behind its past: where the caller of a run
// has lent the input's memory for that very result, its operator writes the new part alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace onnxtorch {

// An input, and the caller's memory for the result, which begins where the input does and has its strides.
struct Grown {
  at::Tensor past, present;
};

// A scope in which operators that this thread runs may write to the memory that was lent.
class __attribute__((visibility("default"))) GrownInPlace {
 public:
  explicit GrownInPlace(std::vector<Grown> lent);
  ~GrownInPlace();
  GrownInPlace(const GrownInPlace&) = delete;
  GrownInPlace& operator=(const GrownInPlace&) = delete;

 private:
  friend at::Tensor grown_in_place(const at::Tensor& past, at::IntArrayRef sizes);
  GrownInPlace* const around_;
  const std::vector<Grown> lent_;
};

// Gives the memory for what begins with this tensor and has these sizes; undefined where the caller has lent none.
__attribute__((visibility("default"))) at::Tensor grown_in_place(const at::Tensor& past, at::IntArrayRef sizes);

}  // namespace onnxtorch
