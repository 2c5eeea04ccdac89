#include "kernels/cpu/quantized/quantize.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/simd/quantized/quantize.h"

namespace onnxtorch {
namespace {

QuantizeStep quantization(double scale, int64_t zero_point, int64_t low, int64_t high) {
  return {static_cast<float>(scale), static_cast<float>(low - zero_point), static_cast<float>(high - zero_point),
          static_cast<int32_t>(zero_point)};
}

DequantizeStep dequantization(double scale, int64_t zero_point) {
  return {static_cast<float>(scale), static_cast<int32_t>(zero_point)};
}

Range united(const Range& a, const Range& b) {
  if (!(a.low <= a.high)) return a;
  if (!(b.low <= b.high)) return b;
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

// Calls the function with the kernels for the type.
template <typename Function>
void for_type(at::ScalarType type, const Function& function) {
  TORCH_CHECK(type == c10::kByte || type == c10::kChar, "expected numbers of 8 bits, got ", type);
  const auto& kernels = for_this_cpu<QuantizeKernels>();
  if (type == c10::kByte) {
    function(kernels.of_uint8);
  } else {
    function(kernels.of_int8);
  }
}

at::Tensor dense(const at::Tensor& x) { return x.is_non_overlapping_and_dense() ? x : x.contiguous(); }

bool is_byte(at::ScalarType type) { return type == c10::kByte || type == c10::kChar; }

// --- The same by memory ---

void dequantize(at::ScalarType type, const void* x, float* y, int64_t count, const DequantizeStep& by) {
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const auto* const from = static_cast<const T*>(x);
    parallel_for(count, 1,
                 [&](int64_t begin, int64_t end) { kernels.dequantize(from + begin, y + begin, end - begin, by); });
  });
}

void quantize(at::ScalarType type, const float* x, void* y, int64_t count, const QuantizeStep& by) {
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    auto* const to = static_cast<T*>(y);
    parallel_for(count, 1,
                 [&](int64_t begin, int64_t end) { kernels.quantize(x + begin, to + begin, end - begin, by); });
  });
}

struct ScaleAndZero {
  float scale;
  uint8_t zero_point;
};

ScaleAndZero dynamic_quantize(const float* x, uint8_t* y, int64_t count) {
  const auto& kernels = for_this_cpu<QuantizeKernels>();
  const Range range = parallel_reduce(
      count, 1, Range(), [&](int64_t begin, int64_t end) { return kernels.range(x + begin, end - begin); }, united);
  const float scale = range.low == range.high ? 1 : (range.high - range.low) / 255;
  const float zero_point = std::nearbyint(std::clamp(-range.low / scale, 0.F, 255.F));
  if (std::isnan(zero_point)) {
    std::fill_n(y, count, uint8_t{0});
    return {scale, 0};
  }
  const auto whole = static_cast<uint8_t>(zero_point);
  quantize(c10::kByte, x, y, count, quantization(scale, whole, 0, 255));
  return {scale, whole};
}

void look_up(at::ScalarType type, const void* x, const uint8_t* table, uint8_t* y, int64_t count) {
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const auto* const from = static_cast<const T*>(x);
    parallel_for(count, 1,
                 [&](int64_t begin, int64_t end) { kernels.look_up(from + begin, table, y + begin, end - begin); });
  });
}

// A tensor of int8 or uint8 with its scale and zero point, or floats, which are taken as they are.
struct Operand {
  at::Tensor x;
  double scale;
  int64_t zero_point;

  at::Tensor values() const { return x.is_floating_point() ? x : onnxtorch::dequantize(x, scale, zero_point); }
};

// The elements that are joined: of int8 or uint8, each with one of as many more, or of floats; or rows of them with a
// row of floats.
struct Pairs {
  at::ScalarType type;
  bool has_floats;
  int64_t count, row;  // `row` is the size of the row, where there is one; else 0
  DequantizeStep a, b;
  Joining by;
  QuantizeStep to;
};

// Gives the pairs of a and b; none where b is neither of the layout of a nor a row.
std::optional<Pairs> pairs(const Operand& a, const Operand& b, Joining by, at::ScalarType type, QuantizeStep to) {
  const at::Tensor &x = a.x, &other = b.x;
  const bool has_floats = other.is_floating_point();
  if (!is_plain(x, type) || !is_plain(other, has_floats ? c10::kFloat : type)) return {};
  const bool alike = x.is_non_overlapping_and_dense() && x.sizes() == other.sizes() && x.strides() == other.strides();
  const bool row = has_floats && x.is_contiguous() && other.is_contiguous() && x.dim() > 0 && other.dim() > 0 &&
                   other.dim() <= x.dim() && other.numel() == other.size(-1) && other.size(-1) == x.size(-1);
  if (!alike && !row) return {};
  return Pairs{type,
               has_floats,
               x.numel(),
               alike ? 0 : other.numel(),
               dequantization(a.scale, a.zero_point),
               dequantization(b.scale, b.zero_point),
               by,
               to};
}

// The kernels that join them, out of those for a type: one for two integers, and one for an integer and a float.
constexpr auto kAdd = [](const auto& of) { return std::pair(of.add, of.add_floats); };
constexpr auto kMultiply = [](const auto& of) { return std::pair(of.multiply, of.multiply_floats); };

template <typename KernelsOf>
void join(const Pairs& of, const void* a, const void* b, void* y, const KernelsOf& kernels_of) {
  for_type(of.type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const auto* const first = static_cast<const T*>(a);
    auto* const result = static_cast<T*>(y);
    const auto join_all = [&]<typename B>(const B* second, const auto& join_block) {
      if (of.row == 0) {
        return parallel_for(of.count, 1, [&](int64_t begin, int64_t end) {
          join_block(first + begin, of.a, second + begin, of.b, of.by, result + begin, end - begin, of.to);
        });
      }
      parallel_for(of.count / of.row, of.row, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * of.row; i < end * of.row; i += of.row)
          join_block(first + i, of.a, second, of.b, of.by, result + i, of.row, of.to);
      });
    };
    const auto [of_numbers, of_floats] = kernels_of(kernels);
    of.has_floats ? join_all(static_cast<const float*>(b), of_floats) : join_all(static_cast<const T*>(b), of_numbers);
  });
}

// Joins tensors; returns none where they are no pairs.
template <typename KernelsOf>
std::optional<at::Tensor> joined(const Operand& a, const Operand& b, Joining by, at::ScalarType type, QuantizeStep to,
                                 const KernelsOf& kernels_of) {
  const auto of = pairs(a, b, by, type, to);
  if (!of) return {};
  at::Tensor y = work_tensor(a.x.sizes(), a.x.strides(), type);
  join(*of, a.x.const_data_ptr(), b.x.const_data_ptr(), y.data_ptr(), kernels_of);
  return y;
}

}  // namespace

at::Tensor dequantize(const at::Tensor& given, double scale, int64_t zero_point) {
  const at::Tensor x = dense(given), y = work_tensor(x.sizes(), x.strides(), c10::kFloat);
  dequantize(x.scalar_type(), x.const_data_ptr(), y.data_ptr<float>(), x.numel(), dequantization(scale, zero_point));
  return y;
}

at::Tensor quantize(const at::Tensor& given, double scale, int64_t zero_point, int64_t low, int64_t high,
                    at::ScalarType type) {
  const at::Tensor x = dense(given.to(c10::kFloat)), y = work_tensor(x.sizes(), x.strides(), type);
  quantize(type, x.const_data_ptr<float>(), y.data_ptr(), x.numel(), quantization(scale, zero_point, low, high));
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> dynamic_quantize(const at::Tensor& given) {
  TORCH_CHECK(given.numel() > 0, "an empty tensor has no range to quantize");
  const at::Tensor x = dense(given.to(c10::kFloat)), y = work_tensor(x.sizes(), x.strides(), c10::kByte);
  const auto [scale, zero_point] = dynamic_quantize(x.const_data_ptr<float>(), y.data_ptr<uint8_t>(), x.numel());
  return {y, at::scalar_tensor(scale, c10::kFloat), at::scalar_tensor(zero_point, c10::kByte)};
}

at::Tensor look_up(const at::Tensor& given, const at::Tensor& table) {
  const at::Tensor x = dense(given), y = work_tensor(x.sizes(), x.strides(), table.scalar_type());
  look_up(x.scalar_type(), x.const_data_ptr(), static_cast<const uint8_t*>(table.const_data_ptr()),
          static_cast<uint8_t*>(y.data_ptr()), x.numel());
  return y;
}

at::Tensor quantized_add(const at::Tensor& a, double a_scale, int64_t a_zero_point, const at::Tensor& b, double b_scale,
                         int64_t b_zero_point, double start, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type) {
  const Operand first{dense(a), a_scale, a_zero_point}, second{b, b_scale, b_zero_point};
  const Joining by{.start = static_cast<float>(start)};
  const auto result = joined(first, second, by, type, quantization(scale, zero_point, low, high), kAdd);
  if (result) return *result;
  return quantize(at::add(at::add(first.values(), start), second.values()), scale, zero_point, low, high, type);
}

at::Tensor quantized_mul(const at::Tensor& a, double a_scale, int64_t a_zero_point, const at::Tensor& b, double b_scale,
                         int64_t b_zero_point, double unit, double start, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type) {
  const Operand first{dense(a), a_scale, a_zero_point}, second{b, b_scale, b_zero_point};
  const Joining by{.unit = static_cast<float>(unit), .start = static_cast<float>(start)};
  const auto result = joined(first, second, by, type, quantization(scale, zero_point, low, high), kMultiply);
  if (result) return *result;
  const at::Tensor product = at::mul(at::mul(first.values(), second.values()), unit);
  return quantize(at::add(product, start), scale, zero_point, low, high, type);
}

at::Tensor dequantize_along(const at::Tensor& x, const at::Tensor& scale, int64_t axis) {
  std::vector<int64_t> shape(x.dim(), 1);
  if (scale.numel() != 1) shape[axis] = scale.numel();
  return at::mul(x.to(c10::kFloat), scale.reshape(shape));
}

namespace {

bool lie_alike(const at::Tensor& x, const at::Tensor& y) {
  return x.is_cpu() && x.numel() > 0 && x.is_non_overlapping_and_dense() && x.strides() == y.strides();
}

std::unique_ptr<PlannedCall> plan_dequantize(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!is_byte(x.scalar_type()) || !lie_alike(x, of.results[0])) return {};
  return planned(
      [type = x.scalar_type(), count = x.numel(),
       by = dequantization(of.arguments[1].toDouble(), of.arguments[2].toInt())](std::span<const TensorPlace> places) {
        dequantize(type, places[0].data, places[1].as<float>(), count, by);
      });
}

std::unique_ptr<PlannedCall> plan_quantize(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (x.scalar_type() != c10::kFloat || !lie_alike(x, of.results[0])) return {};
  return planned([type = of.arguments[5].toScalarType(), count = x.numel(),
                  by = quantization(of.arguments[1].toDouble(), of.arguments[2].toInt(), of.arguments[3].toInt(),
                                    of.arguments[4].toInt())](std::span<const TensorPlace> places) {
    quantize(type, places[0].as<float>(), places[1].data, count, by);
  });
}

std::unique_ptr<PlannedCall> plan_dynamic_quantize(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (x.scalar_type() != c10::kFloat || !lie_alike(x, of.results[0])) return {};
  return planned([count = x.numel()](std::span<const TensorPlace> places) {
    const auto [scale, zero_point] = dynamic_quantize(places[0].as<float>(), places[1].as<uint8_t>(), count);
    *places[2].as<float>() = scale;
    *places[3].as<uint8_t>() = zero_point;
  });
}

std::unique_ptr<PlannedCall> plan_look_up(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!is_byte(x.scalar_type()) || !lie_alike(x, of.results[0])) return {};
  return planned(
      [type = x.scalar_type(), count = x.numel()](std::span<const TensorPlace> places) {
        look_up(type, places[0].data, places[1].as<uint8_t>(), places[2].as<uint8_t>(), count);
      },
      {{.result = 2, .argument = 0}});
}

// Plans a joining. The arguments are those of both operands, of how they are joined, which is `by`, and, from `to` on,
// of what the results are quantized to.
template <typename KernelsOf>
std::unique_ptr<PlannedCall> plan_joined(const PlannedOperands& of, Joining by, size_t to,
                                         const KernelsOf& kernels_of) {
  const auto number = [&](size_t i) { return of.arguments[i].toDouble(); };
  const auto integer = [&](size_t i) { return of.arguments[i].toInt(); };
  const auto all = pairs({of.tensor(0), number(1), integer(2)}, {of.tensor(3), number(4), integer(5)}, by,
                         of.arguments[to + 4].toScalarType(),
                         quantization(number(to), integer(to + 1), integer(to + 2), integer(to + 3)));
  if (!all || !lie_alike(of.tensor(0), of.results[0])) return {};
  return planned(
      [all = *all, kernels_of](std::span<const TensorPlace> places) {
        join(all, places[0].data, places[1].data, places[2].data, kernels_of);
      },
      {{.result = 2, .argument = 0}});
}

std::unique_ptr<PlannedCall> plan_quantized_add(const PlannedOperands& of) {
  const auto start = static_cast<float>(of.arguments[6].toDouble());
  return plan_joined(of, {.start = start}, 7, kAdd);
}

std::unique_ptr<PlannedCall> plan_quantized_mul(const PlannedOperands& of) {
  const auto unit = static_cast<float>(of.arguments[6].toDouble());
  const auto start = static_cast<float>(of.arguments[7].toDouble());
  return plan_joined(of, {.unit = unit, .start = start}, 8, kMultiply);
}

}  // namespace

void register_quantize() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("dynamic_quantize(Tensor x) -> (Tensor, Tensor, Tensor)",
          static_cast<std::tuple<at::Tensor, at::Tensor, at::Tensor> (*)(const at::Tensor&)>(dynamic_quantize));
    m.def("dequantize(Tensor x, float scale, int zero_point) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, double, int64_t)>(dequantize));
    m.def("dequantize_along(Tensor x, Tensor scale, int axis) -> Tensor", dequantize_along);
    m.def("quantize(Tensor x, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, double, int64_t, int64_t, int64_t, at::ScalarType)>(quantize));
    m.def("look_up(Tensor x, Tensor table) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&)>(look_up));
    m.def(
        "quantized_add(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, "
        "float start, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
        quantized_add);
    m.def(
        "quantized_mul(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, "
        "float unit, float start, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
        quantized_mul);
  });
  register_planner("onnx_torch::dequantize", plan_dequantize);
  register_planner("onnx_torch::quantize", plan_quantize);
  register_planner("onnx_torch::dynamic_quantize", plan_dynamic_quantize);
  register_planner("onnx_torch::look_up", plan_look_up);
  register_planner("onnx_torch::quantized_add", plan_quantized_add);
  register_planner("onnx_torch::quantized_mul", plan_quantized_mul);
}

}  // namespace onnxtorch
