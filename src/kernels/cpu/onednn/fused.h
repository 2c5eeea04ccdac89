// The base of packed operators: they run one primitive with all steps fused where the operands have the result's shape
// and layout, and otherwise leave the steps to ATen.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/onednn/laid_weight.h"
#include "kernels/cpu/onednn/primitives.h"
#include "kernels/cpu/onednn/row_product.h"
#include "kernels/cpu/packed/row_steps.h"

namespace onnxtorch::onednn {

// A primitive made for one shape of input; none where oneDNN has only its reference implementation.
struct Prepared {
  dnnl::primitive primitive;
  dnnl::memory::desc source, result, scratchpad;
  Laid weight;
  std::vector<int64_t> sizes, strides;  // of the result as a tensor
  int threads = 0;                      // at most; 0: as many as there are
  // A primitive with the same weight, for what comes after the source and the result in memory.
  std::shared_ptr<const Prepared> rest = {};
  std::shared_ptr<Frames> frames = std::make_shared<Frames>();
};

class Fused : public PackedProduct {
 public:
  // `terms` is the number of products that make an element of the result.
  Fused(const at::Tensor& weight, const at::Tensor& bias, int64_t terms, c10::ScalarType result,
        std::vector<PostOp> post_ops);
  at::Tensor run(const at::Tensor& x, at::TensorList operands) const override;
  std::unique_ptr<PlannedCall> planned(const at::Tensor& x, at::TensorList operands,
                                       const at::Tensor& y) const override;
  void expect(at::IntArrayRef sizes) const override;
  std::vector<SavedWeights> saved() const override { return laid_.saved(); }
  void take(std::vector<SavedWeights> saved) const override { laid_.take(saved); }

 protected:
  // Tells whether the operation is defined for inputs of these sizes; of others ATen says what is wrong.
  virtual bool fits(at::IntArrayRef sizes) const = 0;
  bool takes(at::IntArrayRef sizes) const { return are_ints(sizes) && fits(sizes); }
  // Gives the strides with which a primitive takes an input, and lays out a result.
  virtual std::vector<int64_t> strides(at::IntArrayRef sizes) const = 0;
  virtual Prepared prepare(at::IntArrayRef sizes, std::span<const PostOp> post_ops) const = 0;
  // Gives the sizes of consecutive parts, as which an input of these sizes is taken: where sizes are open, primitives
  // of few sizes serve all. Gives nothing where the input is taken whole.
  virtual std::vector<at::DimVector> parts(at::IntArrayRef /*sizes*/) const { return {}; }
  virtual at::Tensor by_aten(const at::Tensor& x) const = 0;

  // Takes inputs as rows of a matrix, where they are of float32 and all dimensions after `dim` are 1; the weight, which
  // `form` shows, is [in, out].
  void take_rows(const at::Tensor& form, int64_t dim);

  const LaidWeight laid_;
  const at::Tensor form_;  // of the weight, without memory
  const at::Tensor bias_;  // of float32
  const c10::ScalarType result_;

 private:
  using Steps = std::span<const PostOp>;
  using Operands = c10::SmallVector<char*, 4>;

  class PlannedProduct;

  int64_t rows_taken(at::IntArrayRef sizes) const;
  std::vector<int64_t> sizes_of_product(at::IntArrayRef rows) const;
  at::Tensor run_rows(const at::Tensor& x, int64_t rows, at::TensorList operands) const;
  void run_rows(const float* x, float* y, int64_t rows, std::span<const float* const> operands) const;
  std::shared_ptr<const Prepared> prepared(at::IntArrayRef sizes, Steps steps) const;
  std::shared_ptr<const Prepared> prepared_whole(at::IntArrayRef sizes, Steps steps) const;
  Prepared prepare_for_threads(at::IntArrayRef sizes, Steps steps) const;
  Prepared prepare_in_parts(at::IntArrayRef sizes, Steps steps, std::span<const at::DimVector> parts) const;
  std::optional<at::Tensor> run_fused(const at::Tensor& x, at::TensorList operands) const;
  std::optional<at::Tensor> run_without_steps(const at::Tensor& x) const;
  template <typename Bound>
  std::optional<float> bound_of_result(Steps steps, const Bound& bound) const;
  at::Tensor execute(const Prepared& p, const at::Tensor& x, Steps steps, at::TensorList operands) const;
  void execute(const Prepared& p, char* x, char* y, Steps steps, Operands operands) const;

  std::optional<RowProduct> row_product_;
  const RowSteps row_steps_;
  int64_t row_dim_ = -1;
  const int64_t terms_;
  const dnnl::memory lent_bias_;
  const std::vector<PostOp> post_ops_;
  const std::vector<PostOp> summing_;  // the same, with a Sum for an Add at the beginning
  const size_t operands_;
  // Where a step would lose a NaN, a result is not larger than gain * the input + offset.
  const bool loses_nan_;
  const float gain_, offset_;
  mutable Recent<ShapeKey, Prepared> recent_{64};
};

}  // namespace onnxtorch::onednn
