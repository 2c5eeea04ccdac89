// Convolutions and products of int8 and uint8 with constant weights: oneDNN adds up in int32, exactly, or a kernel of
// our own does on CPUs where oneDNN cannot; one pass over the sums accounts for zero points, and computes what follows.
#pragma once

#include <c10/util/accumulate.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/fused.h"
#include "kernels/cpu/onednn/primitives.h"
#include "kernels/cpu/quantized/panel_product.h"

namespace onnxtorch::onednn {

// Makes the primitive for x @ weight over rows of int8 or uint8; `sizes` are those of x. A float bias is [1, out].
// Returns none where oneDNN has only its reference implementation.
Prepared prepared_product(const at::Tensor& weight, at::IntArrayRef sizes, dnnl::memory::data_type source,
                          dnnl::memory::data_type result, bool has_bias, const dnnl::primitive_attr& attributes,
                          const LaidWeight& laid);

// The base of products of int8 and uint8, `Base` being the way in which a packed operator runs: oneDNN computes them
// where this CPU has instructions for them, else panels do.
template <typename Base>
class ByteProduct : public Base {
 public:
  template <typename... Weight>
  explicit ByteProduct(Weight&&... weight) : laid_(std::forward<Weight>(weight)...) {}

  void expect(at::IntArrayRef sizes) const override {
    if (!takes(sizes) || c10::multiply_integers(sizes) == 0) return;
    if (cpu_features().int8_products) {
      prepared(padded(sizes));
    } else {
      panels().lay_out(laid_);
    }
  }

  std::vector<SavedWeights> saved() const override { return laid_.saved(); }
  void take(std::vector<SavedWeights> saved) const override { laid_.take(saved); }

 protected:
  virtual bool fits(at::IntArrayRef sizes) const = 0;
  // Gives the sizes of the input as a primitive takes it.
  virtual std::vector<int64_t> padded(at::IntArrayRef sizes) const { return sizes.vec(); }
  virtual Prepared prepare(at::IntArrayRef sizes) const = 0;
  virtual const PanelProduct& panels() const = 0;

  bool takes(at::IntArrayRef sizes) const {
    return are_ints(sizes) && fits(sizes) && (cpu_features().int8_products || panels().is_possible());
  }

  std::shared_ptr<const Prepared> prepared(at::IntArrayRef sizes) const {
    return recent_.get(primitive_key().add(sizes), [&] {
      need_memory();
      return prepare(sizes);
    });
  }

  const LaidWeight laid_;

 private:
  mutable Recent<ShapeKey, Prepared> recent_{64};
};

}  // namespace onnxtorch::onednn
