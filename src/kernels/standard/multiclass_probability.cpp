// SVMClassifier's probabilities of several classes from those of pairs.
#include "kernels/standard/multiclass_probability.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

#include "base/parallel.h"
#include "kernels/standard/coupling.h"

namespace onnxtorch {
namespace {

using at::Tensor;

Tensor multiclass_probability(const Tensor& pairs) {
  check_pairs(pairs);
  const int64_t rows = pairs.size(0);
  const int64_t classes = pairs.size(1);
  const Tensor in = pairs.cpu().contiguous();
  Tensor out = at::empty({rows, classes}, in.options());
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "multiclass_probability", [&] {
    const auto* from = in.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    constexpr int64_t kCost = 64;  // of a pair of classes, in all rounds
    parallel_for(rows, kCost * classes * classes, [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> memory(Coupling<scalar_t>::work(classes));
      Coupling<scalar_t> coupling(classes, memory.data());
      for (int64_t row = begin; row < end; ++row) coupling.solve(from + row * classes * classes, to + row * classes);
    });
  });
  return out.to(pairs.device());
}

}  // namespace

void check_pairs(const Tensor& pairs) {
  TORCH_CHECK_VALUE(pairs.dim() == 3 && pairs.size(1) == pairs.size(2),
                    "multiclass_probability takes a tensor of shape [N, C, C], not ", pairs.sizes());
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // Turns [N, C, C], where [n, i, j] is the probability of class i if it is i or j, into the probabilities [N, C] of
  // all classes.
  m.def("multiclass_probability(Tensor pairs) -> Tensor");
  m.impl("multiclass_probability", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(multiclass_probability));
}

}  // namespace onnxtorch
