// The scores of support vector machines.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The function by which a row and a support vector are compared: exp(-gamma * |x - v|^2), or (gamma * xv + coef0) to
// the power of degree, or the hyperbolic tangent of gamma * xv + coef0.
enum class SupportVectorKernel : uint8_t { Polynomial, Rbf, Sigmoid };

struct SupportVectors {
  const float* vectors;       // [features, count]
  const float* coefficients;  // [scores, count]
  int64_t features, count, scores;
  SupportVectorKernel kernel;
  double gamma, coef0, degree;
};

struct SupportVectorKernels {
  // Adds to the scores [rows, scores] of the rows x [rows, features] what the support vectors count for.
  void (*add_scores)(SupportVectors of, const float* x, int64_t rows, double* scores);
  void (*add_scores_of_doubles)(SupportVectors of, const double* x, int64_t rows, double* scores);

  // Adds x [rows, features] times weights [scores, features] to y [rows, scores].
  void (*multiply_in_double)(const float* x, const double* weights, int64_t rows, int64_t features, int64_t scores,
                             double* y);
  void (*multiply_doubles)(const double* x, const double* weights, int64_t rows, int64_t features, int64_t scores,
                           double* y);

  static const SupportVectorKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
