// Convolutions and products of int8 and uint8 by kernels of our own, for CPUs on which oneDNN's are not exact.
#pragma once

#include "kernels/cpu/packed/convolution.h"
#include "kernels/cpu/packed/held_weight.h"
#include "kernels/cpu/quantized/quantize.h"
#include "kernels/simd/panel_product.h"

namespace onnxtorch {

class PanelProduct {
 public:
  // The weight of the convolution, or the matrix [in, out], may be without memory.
  explicit PanelProduct(Convolution convolution);
  explicit PanelProduct(const at::Tensor& matrix);

  // Computes sums in int32. Images lie with the channels innermost, as the result does.
  at::Tensor sums(const HeldWeight& weight, const at::Tensor& x) const;

  // The scaling of sums of x less its zero point, which is zero in the padding: times a unit, for all or for each
  // column of the result, plus the bias, which may be undefined; and as int8 or uint8 in this quantization's steps.
  struct Scaled {
    const at::Tensor &unit, &bias;
    std::optional<Quantization> steps;
  };
  at::Tensor finished(const HeldWeight& weight, const at::Tensor& x, int64_t zero_point, const Scaled& as) const;

  void lay_out(const HeldWeight& weight) const { panels(weight); }
  // Tells whether a column has few enough rows to be laid out.
  bool is_possible() const { return convolution_.weight.numel() <= kMostStripRows * columns(); }

 private:
  // A function that takes rows and columns of the result, from these on; the rows of their sums lie so far apart.
  using Put = std::function<void(const int32_t* sums, int64_t apart, int64_t row, int64_t rows, int64_t column,
                                 int64_t columns)>;

  bool is_depthwise() const;
  int64_t columns() const { return convolution_.weight.size(0); }  // of the result
  at::Tensor panels(const HeldWeight& weight) const;
  // Gives the matrices of the groups: [group, row, column].
  at::Tensor matrices_of(const at::Tensor& weight) const;
  at::Tensor weight_of(const at::Tensor& matrices) const;

  at::Tensor empty_result(const at::Tensor& x, c10::ScalarType type) const;
  void multiply(const HeldWeight& weight, const at::Tensor& x, int64_t zero_point, const Put& put) const;
  void multiply_patches(const uint8_t* x, Patches p, int64_t windows, const at::Tensor& laid, const Put& put) const;
  void multiply_channels(const at::Tensor& x, const Patches& p, int64_t windows, const at::Tensor& laid,
                         const Put& put) const;

  const Convolution convolution_;  // for a matrix, of images of one line, a pixel for each row
  const bool is_matrix_;
};

}  // namespace onnxtorch
