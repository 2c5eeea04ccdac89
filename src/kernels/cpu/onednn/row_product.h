// Products of one row, and small ones, without a primitive: the call of one takes longer than a small product, and
// oneDNN takes one row at 60 % of the speed that memory has.
#pragma once

#include "base/fork_safe.h"
#include "kernels/cpu/onednn/laid_weight.h"

namespace onnxtorch::onednn {

class RowProduct {
 public:
  // The weight is [in, out], and `form` tells how it is to be taken, without memory; the bias may be undefined.
  RowProduct(const LaidWeight& laid, at::Tensor form, at::Tensor bias);

  // Tells whether so many rows are taken.
  bool takes(int64_t rows) const { return is_small(rows) || (rows == 1 && panels().width > 0); }
  int64_t columns() const { return out_; }  // of the result
  // Computes rows @ weight + bias, and 0 for what is less where `relu`. The rows lie along this dimension, after which
  // all sizes are 1.
  at::Tensor run(const at::Tensor& rows, int64_t dim, bool relu) const;
  // Does the same for contiguous rows in memory.
  void run(const float* x, float* y, int64_t rows, bool relu = false) const;
  // Makes ready for so many rows, which are taken.
  void expect(int64_t rows) const;

 private:
  // The weight as oneDNN lays it out for one row, where that is in panels of whole columns.
  struct Panels {
    Laid weight;
    int64_t width = 0, apart = 0;  // in elements; the width is 0 where it is not
  };

  bool is_small(int64_t rows) const;
  const at::Tensor& blocks() const;
  const Panels& panels() const;
  void take_blocks(const float* x, float* y, int64_t rows, bool relu) const;
  void take_panels(const float* x, float* y) const;

  const LaidWeight& laid_;
  const at::Tensor form_, bias_;
  const int64_t in_, out_;
  mutable Once blocks_made_, panels_made_;
  mutable at::Tensor blocks_;  // the weight in panels of kColumnsOfPanel columns
  mutable Panels panels_;
};

}  // namespace onnxtorch::onednn
