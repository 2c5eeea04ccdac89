#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/registered.h"
#include "kernels/composite/operators.h"

namespace onnxtorch {
namespace {

using at::Tensor;

bool is_integer(c10::ScalarType type) { return c10::isIntegralType(type, /*includeBool=*/false); }

// --- Products: what their type does not hold is dropped --------------------------------------------------------------

using ProductFunction = std::function<Tensor(at::TensorList factors)>;

// Splits x into pieces of `width` bits: the sum of pieces[k] << k * width is x, or is equal to it in as many bits as x
// has.
std::vector<Tensor> pieces_of(const Tensor& x, int64_t width) {
  const Tensor wide = x.to(at::kLong);
  std::vector<Tensor> pieces;
  for (int64_t shift = 0; shift < 8 * x.element_size(); shift += width) {
    pieces.push_back(at::bitwise_and(wide.bitwise_right_shift(shift), (int64_t{1} << width) - 1).to(at::kDouble));
  }
  return pieces;
}

// Computes a product of integers, each element of which adds up so many terms, by products in double precision: of
// pieces so small that their sums are whole numbers that a double holds.
Tensor exact_product(at::TensorList factors, double terms, const ProductFunction& product) {
  constexpr int kMantissa = 53;
  const int64_t bits = 8 * factors[0].element_size();
  const auto width =
      (kMantissa - static_cast<int64_t>(std::ceil(std::log2(std::max(terms, 1.0))))) / std::ssize(factors);
  TORCH_CHECK(width > 0, "a product of integers of ", factors.size(), " factors and ", terms, " terms is too large");
  std::vector<std::vector<Tensor>> pieces;
  for (const Tensor& factor : factors) pieces.push_back(pieces_of(factor, width));

  Tensor result;
  std::vector<Tensor> chosen;
  const auto add = [&](const auto& self, int64_t shift) -> void {
    if (chosen.size() == factors.size()) {
      const Tensor part = product(chosen).to(at::kLong).bitwise_left_shift(shift);
      result = result.defined() ? result.add_(part) : part;
      return;
    }
    for (const Tensor& piece : pieces[chosen.size()]) {
      if (shift >= bits) break;
      chosen.push_back(piece);
      self(self, shift);
      chosen.pop_back();
      shift += width;
    }
  };
  add(add, 0);
  return result.to(factors[0].scalar_type());
}

Tensor matmul_of_any(const Tensor& a, const Tensor& b) {
  if (!is_integer(a.scalar_type())) return at::matmul(a, b);
  const auto terms = static_cast<double>(a.dim() > 0 ? a.size(-1) : 1);
  return exact_product({a, b}, terms, [](at::TensorList factors) { return at::matmul(factors[0], factors[1]); });
}

Tensor addmm_of_any(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  if (!is_integer(a.scalar_type())) return at::addmm(self, a, b, beta, alpha);
  return matmul_of_any(a, b).mul(alpha).add(self.mul(beta));
}

// Gives how many terms an element of an einsum adds up: the number of elements of the einsum that adds up nothing,
// divided by that of the result.
double terms_of(std::string_view equation, at::TensorList operands) {
  const std::string inputs(equation.substr(0, equation.find("->")));
  std::string letters = inputs.find("...") == std::string::npos ? "" : "...";
  for (const char c : inputs) {
    if (std::isalpha(static_cast<unsigned char>(c)) && letters.find(c) == std::string::npos) letters += c;
  }
  std::vector<Tensor> forms;
  for (const Tensor& operand : operands) forms.push_back(at::empty(operand.sizes(), at::device(at::kMeta)));
  const auto numbers = [&](std::string_view of) { return static_cast<double>(at::einsum(of, forms).numel()); };
  return numbers(inputs + "->" + letters) / std::max(numbers(equation), 1.0);
}

Tensor einsum_of_any(std::string_view equation, at::TensorList operands, at::OptionalIntArrayRef path) {
  const auto by_aten = [&](at::TensorList factors) { return at::einsum(equation, factors, path); };
  const bool product = operands.size() > 1 && is_integer(operands[0].scalar_type());
  return product ? exact_product(operands, terms_of(equation, operands), by_aten) : by_aten(operands);
}

// --- Maximum pooling: float16 holds every int8 and uint8 -------------------------------------------------------------

using Pool = std::tuple<Tensor, Tensor>(const Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                        at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode);

template <Pool* pool>
std::tuple<Tensor, Tensor> max_pool_of_any(const Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                           at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const bool bytes = x.scalar_type() == at::kByte || x.scalar_type() == at::kChar;
  auto [values, indices] = pool(bytes ? x.to(at::kHalf) : x, kernel_size, stride, padding, dilation, ceil_mode);
  return {values.to(x.scalar_type()), indices};
}

// --- Activations: ATen's kernels for CUDA take a sixth in float32 for doubles, too ---

Tensor hardsigmoid_of_any(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? x.div(6).add(0.5).clamp(0, 1) : at::hardsigmoid(x);
}

Tensor hardswish_of_any(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? x.mul(hardsigmoid_of_any(x)) : at::hardswish(x);
}

}  // namespace

void register_operators_of_any_type() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("matmul_of_any(Tensor a, Tensor b) -> Tensor", matmul_of_any);
    m.def("addmm_of_any(Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha) -> Tensor", addmm_of_any);
    m.def("hardsigmoid_of_any(Tensor x) -> Tensor", hardsigmoid_of_any);
    m.def("hardswish_of_any(Tensor x) -> Tensor", hardswish_of_any);
    m.def("einsum_of_any(str equation, Tensor[] tensors, int[]? path) -> Tensor", einsum_of_any);
    const std::string arguments =
        "(Tensor x, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> (Tensor, "
        "Tensor)";
    m.def(("max_pool1d_with_indices_of_any" + arguments).c_str(), max_pool_of_any<at::max_pool1d_with_indices>);
    m.def(("max_pool2d_with_indices_of_any" + arguments).c_str(), max_pool_of_any<at::max_pool2d_with_indices>);
    m.def(("max_pool3d_with_indices_of_any" + arguments).c_str(), max_pool_of_any<at::max_pool3d_with_indices>);
  });
}

}  // namespace onnxtorch
