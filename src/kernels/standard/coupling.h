// Probabilities of several classes from those of pairs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/both_sides.h"

namespace onnxtorch {

// Wu, Lin, Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), algorithm 2.
// Minimises p'Qp over the simplex, where Q follows from the pairs, with as many rounds and as exact as libsvm does.
template <typename T>
class Coupling {
 public:
  // Gives how many elements of memory it works in.
  ONNX_TORCH_BOTH static int64_t work(int64_t classes) { return classes * classes + classes; }

  ONNX_TORCH_BOTH Coupling(int64_t classes, T* memory)
      : classes_(classes), q_(memory), qp_(memory + classes * classes) {}

  // Computes p [classes] from pairs [classes, classes].
  ONNX_TORCH_BOTH void solve(const T* pairs, T* p) {
    fill_q(pairs);
    for (int64_t t = 0; t < classes_; ++t) p[t] = T(1) / static_cast<T>(classes_);
    const T tolerance = T(0.005) / static_cast<T>(classes_);
    const int64_t rounds = classes_ > 100 ? classes_ : 100;
    for (int64_t round = 0; round < rounds; ++round) {
      T pqp = multiply(p);
      T error = 0;
      for (int64_t t = 0; t < classes_; ++t) error = std::max(error, std::abs(qp_[t] - pqp));
      if (error < tolerance) break;
      for (int64_t t = 0; t < classes_; ++t) pqp = move(p, t, pqp);
    }
  }

 private:
  ONNX_TORCH_BOTH void fill_q(const T* r) {
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

  // Computes qp = Qp; returns p'Qp.
  ONNX_TORCH_BOTH T multiply(const T* p) {
    T pqp = 0;
    for (int64_t t = 0; t < classes_; ++t) {
      qp_[t] = 0;
      for (int64_t j = 0; j < classes_; ++j) qp_[t] += q_[t * classes_ + j] * p[j];
      pqp += p[t] * qp_[t];
    }
    return pqp;
  }

  // Puts p[t] where the gradient along it is zero, and scales p back to the simplex.
  ONNX_TORCH_BOTH T move(T* p, int64_t t, T pqp) {
    const T* row = q_ + t * classes_;
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
  T *q_, *qp_;  // [classes, classes] and [classes]
};

}  // namespace onnxtorch
