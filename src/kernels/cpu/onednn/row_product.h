// Products of rows without a primitive: small ones, as the call of one takes longer; of one row, which oneDNN takes at
// 60 % of the speed that memory has; and all where a kernel of our own is faster than a primitive, which divides its
// work among threads before it begins, and waits for the slower one.
#pragma once

#include "base/fork_safe.h"
#include "kernels/cpu/onednn/laid_weight.h"

namespace onnxtorch::onednn {

class RowProduct {
 public:
  // The weight is [in, out], and `form` tells how it is to be taken, without memory; the bias may be undefined.
  RowProduct(const LaidWeight& laid, at::Tensor form, at::Tensor bias);

  // Tells whether so many rows are taken.
  bool takes(int64_t rows) const { return is_small(rows) || takes_panels(rows); }
  int64_t columns() const { return out_; }  // of the result
  // What is done to each element then: one in the same place is added, where there is an addend, and `relu` gives 0
  // for what is less.
  struct Then {
    const float* addend = nullptr;
    bool relu = false;
  };
  // Tells whether the addend may be the result's memory.
  bool adds_in_place(int64_t rows) const { return rows > 1 && !is_small(rows); }
  // Computes rows @ weight + bias, of contiguous rows.
  void run(const float* x, float* y, int64_t rows, const Then& then) const;
  // Makes ready for so many rows, which are taken.
  void expect(int64_t rows) const;

 private:
  // The weight as oneDNN lays it out for one row, where that is in panels of some columns.
  struct Panels {
    Laid weight;
    int64_t width = 0, apart = 0;  // in elements; the width is 0 where it is not
  };

  bool is_small(int64_t rows) const;
  bool takes_panels(int64_t rows) const;
  const at::Tensor& blocks() const;
  const Panels& panels() const;
  void take_blocks(const float* x, float* y, int64_t rows, bool relu) const;
  void take_panels(const float* x, float* y) const;
  void take_panels(const float* x, float* y, int64_t rows, const Then& then) const;

  const LaidWeight& laid_;
  const at::Tensor form_, bias_;
  const int64_t in_, out_;
  mutable Once blocks_made_, panels_made_;
  mutable at::Tensor blocks_;  // the weight in panels of kColumnsOfPanel columns
  mutable Panels panels_;
};

}  // namespace onnxtorch::onednn
