// SVMClassifier's probabilities of several classes from those of pairs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cmath>
#include <span>
#include <vector>

namespace onnxtorch {
namespace {

using at::Tensor;

// Wu, Lin, Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), algorithm 2.
// Minimises p'Qp over the simplex, where Q follows from the pairs, with as many rounds and as exact as libsvm does.
template <typename T>
class Coupling {
 public:
  explicit Coupling(int64_t classes) : classes_(classes), q_(classes * classes), qp_(classes) {}

  void solve(const T* pairs, std::span<T> p) {
    fill_q(pairs);
    std::fill(p.begin(), p.end(), T(1) / static_cast<T>(classes_));
    const T tolerance = T(0.005) / static_cast<T>(classes_);
    for (int64_t round = 0; round < std::max<int64_t>(100, classes_); ++round) {
      T pqp = multiply(p);
      T error = 0;
      for (const T qp : qp_) error = std::max(error, std::abs(qp - pqp));
      if (error < tolerance) break;
      for (int64_t t = 0; t < classes_; ++t) pqp = move(p, t, pqp);
    }
  }

 private:
  void fill_q(const T* r) {
    for (int64_t t = 0; t < classes_; ++t) {
      T diagonal = 0;
      for (int64_t j = 0; j < classes_; ++j) {
        if (j == t) continue;
        diagonal += r[j * classes_ + t] * r[j * classes_ + t];
        q_[t * classes_ + j] = -r[j * classes_ + t] * r[t * classes_ + j];
      }
      q_[t * classes_ + t] = diagonal;
    }
  }

  // qp_ = Qp; returns p'Qp.
  T multiply(std::span<const T> p) {
    T pqp = 0;
    for (int64_t t = 0; t < classes_; ++t) {
      qp_[t] = 0;
      for (int64_t j = 0; j < classes_; ++j) qp_[t] += q_[t * classes_ + j] * p[j];
      pqp += p[t] * qp_[t];
    }
    return pqp;
  }

  // Puts p[t] where the gradient along it is zero, and scales p back to the simplex.
  T move(std::span<T> p, int64_t t, T pqp) {
    const T* row = q_.data() + t * classes_;
    const T diff = (pqp - qp_[t]) / row[t];
    const T scale = 1 + diff;
    p[t] += diff;
    pqp = (pqp + diff * (diff * row[t] + 2 * qp_[t])) / (scale * scale);
    for (int64_t j = 0; j < classes_; ++j) {
      qp_[j] = (qp_[j] + diff * row[j]) / scale;
      p[j] /= scale;
    }
    return pqp;
  }

  int64_t classes_;
  std::vector<T> q_, qp_;
};

Tensor multiclass_probability(const Tensor& pairs) {
  TORCH_CHECK_VALUE(pairs.dim() == 3 && pairs.size(1) == pairs.size(2),
                    "multiclass_probability takes a tensor of shape [N, C, C], not ", pairs.sizes());
  const int64_t rows = pairs.size(0);
  const int64_t classes = pairs.size(1);
  const Tensor in = pairs.cpu().contiguous();
  Tensor out = at::empty({rows, classes}, in.options());
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "multiclass_probability", [&] {
    const auto* from = in.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
      Coupling<scalar_t> coupling(classes);
      for (int64_t row = begin; row < end; ++row) {
        coupling.solve(from + row * classes * classes, {to + row * classes, static_cast<size_t>(classes)});
      }
    });
  });
  return out.to(pairs.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // [N, C, C], where [n, i, j] is the probability of class i if it is i or j, to the probabilities [N, C] of all
  // classes.
  m.def("multiclass_probability(Tensor pairs) -> Tensor");
  m.impl("multiclass_probability", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(multiclass_probability));
}

}  // namespace onnxtorch
