#include "kernels/simd/support_vectors.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

using Kernel = SupportVectorKernel;

Kernel kernel_named(const std::string& name) {
  if (name == "POLY") return Kernel::Polynomial;
  if (name == "RBF") return Kernel::Rbf;
  TORCH_CHECK_VALUE(name == "SIGMOID", "kernel is POLY, RBF or SIGMOID, not ", name);
  return Kernel::Sigmoid;
}

// Makes the kernels' operand of the arguments, whose elements may come later.
SupportVectors support_vectors(const at::Tensor& vectors, const at::Tensor& coefficients, const std::string& kernel,
                               const std::vector<double>& params) {
  return {.vectors = vectors.const_data_ptr<float>(),
          .coefficients = coefficients.const_data_ptr<float>(),
          .features = vectors.size(0),
          .count = vectors.size(1),
          .scores = coefficients.size(0),
          .kernel = kernel_named(kernel),
          .gamma = params[0],
          .coef0 = params[1],
          .degree = params[2]};
}

// Rows whose features one and the same function turns into sums, the scores.
struct ScoredRows {
  int64_t count, features, scores;
  int64_t cost;  // of a row
};

// Computes the scores. add(x, rows, sums) adds to sums that hold the offsets. Rows come in groups, which go past one
// part of the weights after another.
template <typename T, typename Score, typename Add>
void compute(const ScoredRows& of, const T* x, const double* offsets, Score* scores, const Add& add) {
  constexpr int64_t kGroup = 64;
  parallel_for(of.count, of.cost, [&](int64_t begin, int64_t end) {
    std::vector<double> sums(std::min(kGroup, end - begin) * of.scores);
    for (int64_t first = begin; first < end; first += kGroup) {
      const int64_t count = std::min(kGroup, end - first);
      for (int64_t row = 0; row < count; ++row) std::copy_n(offsets, of.scores, sums.data() + row * of.scores);
      add(x + first * of.features, count, sums.data());
      std::copy_n(sums.data(), count * of.scores, scores + first * of.scores);
    }
  });
}

template <typename T, typename Score>
void compare(const SupportVectors& by, int64_t rows, const T* x, const double* offsets, Score* scores) {
  constexpr int64_t kKernelCost = 8;
  const ScoredRows of{rows, by.features, by.scores, by.count * (by.features + by.scores + kKernelCost)};
  compute(of, x, offsets, scores, [&](const T* some, int64_t count, double* sums) {
    const auto& kernels = for_this_cpu<SupportVectorKernels>();
    if constexpr (std::is_same_v<T, float>) {
      kernels.add_scores(by, some, count, sums);
    } else {
      kernels.add_scores_of_doubles(by, some, count, sums);
    }
  });
}

template <typename T, typename Score>
void multiply(const ScoredRows& of, const T* x, const double* weights, const double* offsets, Score* y) {
  compute(of, x, offsets, y, [&](const T* some, int64_t count, double* sums) {
    const auto& kernels = for_this_cpu<SupportVectorKernels>();
    if constexpr (std::is_same_v<T, float>) {
      kernels.multiply_in_double(some, weights, count, of.features, of.scores, sums);
    } else {
      kernels.multiply_doubles(some, weights, count, of.features, of.scores, sums);
    }
  });
}

// Calls the function with a number of each type.
template <typename Function>
auto for_types(at::ScalarType x, at::ScalarType scores, const Function& function) {
  const auto with = [&](auto from) {
    if (scores == c10::kFloat) return function(from, float());
    return function(from, double());
  };
  if (x == c10::kFloat) return with(float());
  return with(double());
}

void check_offsets(const at::Tensor& offsets, int64_t scores) {
  TORCH_CHECK_VALUE(offsets.dim() == 1 && offsets.size(0) == scores, scores, " scores cannot have offsets of shape ",
                    offsets.sizes());
}

// Computes the scores of support vectors. The arguments may have any strides.
at::Tensor support_vector_scores(const at::Tensor& given_x, const at::Tensor& given_vectors,
                                 const at::Tensor& given_coefficients, const at::Tensor& given_rho,
                                 const std::string& kernel, const std::vector<double>& params, int64_t dtype) {
  const at::Tensor x = given_x.contiguous(), vectors = given_vectors.contiguous(),
                   coefficients = given_coefficients.contiguous(), rho = given_rho.contiguous();
  TORCH_CHECK_VALUE(x.dim() == 2 && vectors.dim() == 2 && x.size(1) == vectors.size(0), "support vectors of ",
                    vectors.size(0), " features cannot be compared with rows of shape ", x.sizes());
  TORCH_CHECK_VALUE(coefficients.dim() == 2 && coefficients.size(1) == vectors.size(1), vectors.size(1),
                    " support vectors cannot have coefficients of shape ", coefficients.sizes());
  check_offsets(rho, coefficients.size(0));
  const auto type = static_cast<at::ScalarType>(dtype);
  const at::Tensor result = at::empty({x.size(0), coefficients.size(0)}, x.options().dtype(type));
  for_types(x.scalar_type(), type, [&]<typename T, typename Score>(T, Score) {
    compare(support_vectors(vectors, coefficients, kernel, params), x.size(0), x.const_data_ptr<T>(),
            rho.const_data_ptr<double>(), result.mutable_data_ptr<Score>());
  });
  return result;
}

ScoredRows rows_of(const at::Tensor& x, const at::Tensor& weights) {
  return {x.size(0), weights.size(1), weights.size(0), weights.numel()};
}

at::Tensor double_linear(const at::Tensor& given_x, const at::Tensor& given_weights, const at::Tensor& given_bias,
                         int64_t dtype) {
  const at::Tensor x = given_x.contiguous(), weights = given_weights.contiguous(), bias = given_bias.contiguous();
  TORCH_CHECK_VALUE(x.dim() == 2 && weights.dim() == 2 && x.size(1) == weights.size(1), "weights of ", weights.sizes(),
                    " cannot be multiplied with rows of shape ", x.sizes());
  check_offsets(bias, weights.size(0));
  const auto type = static_cast<at::ScalarType>(dtype);
  const at::Tensor result = at::empty({x.size(0), weights.size(0)}, x.options().dtype(type));
  for_types(x.scalar_type(), type, [&]<typename T, typename Score>(T, Score) {
    multiply(rows_of(x, weights), x.const_data_ptr<T>(), weights.const_data_ptr<double>(),
             bias.const_data_ptr<double>(), result.mutable_data_ptr<Score>());
  });
  return result;
}

// Tells whether the first so many arguments are tensors with a layout that the kernels take.
bool lie_well(const PlannedOperands& of, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor tensor = of.tensor(i);
    if (!is_plain(tensor, tensor.scalar_type()) || !tensor.is_contiguous()) return false;
  }
  return true;
}

std::unique_ptr<PlannedCall> plan_support_vectors(const PlannedOperands& of) {
  if (!lie_well(of, 4)) return {};
  const at::Tensor x = of.tensor(0);
  const auto vectors =
      support_vectors(of.tensor(1), of.tensor(2), of.arguments[4].toStringRef(), of.arguments[5].toDoubleVector());
  return for_types(x.scalar_type(), of.results[0].scalar_type(), [&]<typename T, typename Score>(T, Score) {
    return planned([vectors, rows = x.size(0)](std::span<const TensorPlace> places) {
      SupportVectors here = vectors;
      here.vectors = places[1].as<float>();
      here.coefficients = places[2].as<float>();
      compare(here, rows, places[0].as<T>(), places[3].as<double>(), places[4].as<Score>());
    });
  });
}

std::unique_ptr<PlannedCall> plan_double_linear(const PlannedOperands& of) {
  if (!lie_well(of, 3)) return {};
  const at::Tensor x = of.tensor(0);
  return for_types(x.scalar_type(), of.results[0].scalar_type(), [&]<typename T, typename Score>(T, Score) {
    return planned([rows = rows_of(x, of.tensor(1))](std::span<const TensorPlace> places) {
      multiply(rows, places[0].as<T>(), places[1].as<double>(), places[2].as<double>(), places[3].as<Score>());
    });
  });
}

}  // namespace

void register_support_vectors() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def(
        "support_vectors(Tensor x, Tensor vectors, Tensor coefficients, Tensor rho, str kernel, float[] params, "
        "int dtype) -> Tensor",
        support_vector_scores);
    m.def("double_linear(Tensor x, Tensor weights, Tensor bias, int dtype) -> Tensor", double_linear);
  });
  register_planner("onnx_torch::support_vectors", plan_support_vectors);
  register_planner("onnx_torch::double_linear", plan_double_linear);
}

}  // namespace onnxtorch
