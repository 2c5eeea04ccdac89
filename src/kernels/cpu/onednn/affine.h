// The product of any number of rows and a weight of float32, from memory to memory.
#pragma once

#include <functional>

#include "kernels/cpu/onednn/row_product.h"

namespace onnxtorch::onednn {

// A function that computes y from x, for as many rows as it was made for.
using RunRows = std::function<void(const float* x, float* y)>;

class Affine {
 public:
  // Computes y = x @ weight.t() + bias. The weight is [out, in]; the bias may be undefined.
  Affine(const at::Tensor& weight, const at::Tensor& bias, std::string name);

  int64_t in() const { return form_.size(0); }
  int64_t out() const { return form_.size(1); }
  const LaidWeight& weight() const { return laid_; }
  const at::Tensor& bias() const { return bias_; }

  // Makes the function for so many rows, which runs with as many threads as there are now.
  RunRows for_rows(int64_t rows) const;

 private:
  struct Prepared {
    dnnl::primitive primitive;
    dnnl::memory::desc x, y, bias, scratchpad;
    Laid weight;
    std::shared_ptr<Frames> frames = std::make_shared<Frames>();
  };
  Prepared prepare(int64_t rows) const;

  const LaidWeight laid_;
  const at::Tensor form_, bias_;
  const RowProduct rows_;
  mutable Recent<ShapeKey, Prepared> recent_{64};
};

}  // namespace onnxtorch::onednn
