// Weights of int8 or uint8 that are taken less their zero points.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace onnxtorch {

// The differences of a weight and its zero points, which need not fit 8 bits: they are numbers of int8, plus a shift
// for each channel.
class ShiftedWeight {
 public:
  // There is one zero point for all or one for each index of a dimension, in int32.
  ShiftedWeight(at::Tensor given, const at::Tensor& zero_points, int64_t channel_dim);

  bool has_shifts() const { return has_shifts_; }
  const at::Tensor& shifts() const { return shifts_; }  // in int32
  int64_t channels() const { return shifts_.numel(); }
  int64_t terms() const { return count_ / channels(); }  // of a sum
  at::IntArrayRef sizes() const { return sizes_; }

  at::Tensor numbers() const;                             // contiguous
  at::Tensor form() const;                                // of the numbers, without memory
  void forget_numbers() { given_.reset(); }               // whoever has taken them holds them
  at::Tensor in_double(const at::Tensor& numbers) const;  // the differences
  // Gives what is added to each channel's sums of x and the numbers, beside shifts times row sums, to make them those
  // of x less its zero point and the differences.
  void offsets(int64_t zero_point, int32_t* to) const;

 private:
  at::Tensor along_channels(const at::Tensor& t) const;

  at::Tensor given_;
  std::vector<int64_t> sizes_;
  int64_t count_;  // of the numbers
  int64_t channel_dim_;
  at::Tensor shifts_, totals_;  // the sum of the numbers for each channel, in int64
  at::Tensor offsets_;          // the numbers are those given less the offsets
  bool has_shifts_ = false;
};

}  // namespace onnxtorch
