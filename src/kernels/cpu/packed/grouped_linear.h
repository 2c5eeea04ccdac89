// The base of products whose weight our own kernels take in groups of columns (kernels/simd/group.h).
#pragma once

#include <cstddef>

#include "kernels/cpu/packed/held_weight.h"
#include "kernels/cpu/packed/packed.h"
#include "kernels/simd/group.h"

namespace onnxtorch {

// Lays out a matrix as groups of panels: [panel][row][column].
at::Tensor in_panels(const at::Tensor& matrix);
int64_t bytes_of_panels(c10::ScalarType type, int64_t in, int64_t out);

// A product that takes no steps. Rows of float16 and bfloat16 are widened, and the result is rounded.
class GroupedLinear : public PackedProduct {
 public:
  at::Tensor run(const at::Tensor& x, at::TensorList operands) const final;
  std::unique_ptr<PlannedCall> planned(const at::Tensor& x, at::TensorList operands, const at::Tensor& y) const final;
  void expect(at::IntArrayRef sizes) const final;
  std::vector<SavedWeights> saved() const final { return weight_.saved(); }
  void take(std::vector<SavedWeights> saved) const final { weight_.take(saved); }

 protected:
  GroupedLinear(const at::Tensor& weight, int64_t in, int64_t out, const at::Tensor& bias);

  // Rows of x and of y, for some columns of a group. Rows of y lie `y_apart` apart.
  struct Part {
    const std::byte* x;
    int64_t rows, group;
    const float* bias;
    float* y;
    int64_t y_apart, columns;
    float* room;
  };
  virtual void multiply(const void* weight, const Part& part) const = 0;
  // Gives the rows as the kernel takes them, in bytes; undefined where it takes floats.
  virtual at::Tensor converted(const float* /*x*/, int64_t /*rows*/) const { return {}; }
  // The needs of the kernel: for more rows than `rows_at_once` it takes `room` floats of memory.
  struct Kernel {
    int64_t rows_at_once, room;
  };
  virtual Kernel kernel() const = 0;
  virtual at::Tensor panels() const = 0;

  const HeldWeight weight_;
  const int64_t in_, out_;

 private:
  bool fits(at::IntArrayRef sizes) const { return !sizes.empty() && sizes.back() == in_; }
  void multiply(const float* x, int64_t rows, float* y) const;

  const at::Tensor bias_;
};

}  // namespace onnxtorch
