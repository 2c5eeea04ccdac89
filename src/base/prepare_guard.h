// The guard that may stop the preparation of a model, and that bounds its time and the memory of what follows from
// constants.
#pragma once

#include "base/stopwatch.h"
#include "onnx_torch/options.h"

namespace onnxtorch {

// A watch over what this thread prepares while it lives; one inside of another does nothing.
class PrepareGuard {
 public:
  explicit PrepareGuard(const Limits& limits);
  ~PrepareGuard();
  PrepareGuard(const PrepareGuard&) = delete;
  PrepareGuard& operator=(const PrepareGuard&) = delete;

  bool has_end() const;  // whether the time is limited
  bool is_over() const;  // whether check() would throw
  void check() const;
  double constant_bytes() const { return constant_bytes_; }
  // Counts bytes that a few bytes of a file stand for. Throws a StoppedError where all of them are too many.
  void count_bytes(double bytes) const;

 private:
  bool outermost_;
  double seconds_, constant_bytes_;
  mutable double counted_bytes_ = 0;
  Stopwatch since_start_;
};

const PrepareGuard* guard_of_preparation();  // this thread's; none where it prepares nothing

void check_preparation();  // throws a StoppedError where it takes too long, std::bad_alloc where memory is out

void count_constant_bytes(double bytes);  // does so where this thread prepares a model

// Tells how many bytes tensors may have that are computed of constants, all together; never more than the machine has.
double most_constant_bytes();

}  // namespace onnxtorch
