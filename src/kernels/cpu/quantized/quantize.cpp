#include "kernels/cpu/quantized/quantize.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/simd/quantized/quantize.h"

namespace onnxtorch::onednn {
namespace {

Quantization quantization(double scale, int64_t zero_point, int64_t low, int64_t high) {
  return {static_cast<float>(scale), static_cast<float>(low - zero_point), static_cast<float>(high - zero_point),
          static_cast<int32_t>(zero_point)};
}

Dequantization dequantization(double scale, int64_t zero_point) {
  return {static_cast<float>(scale), static_cast<int32_t>(zero_point)};
}

Range joined(const Range& a, const Range& b) {
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

void dequantize(at::ScalarType type, const void* x, float* y, int64_t count, const Dequantization& by) {
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const auto* const from = static_cast<const T*>(x);
    parallel_for(count, 1,
                 [&](int64_t begin, int64_t end) { kernels.dequantize(from + begin, y + begin, end - begin, by); });
  });
}

void quantize(at::ScalarType type, const float* x, void* y, int64_t count, const Quantization& by) {
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    auto* const to = static_cast<T*>(y);
    parallel_for(count, 1,
                 [&](int64_t begin, int64_t end) { kernels.quantize(x + begin, to + begin, end - begin, by); });
  });
}

void look_up(at::ScalarType type, const void* x, const uint8_t* table, uint8_t* y, int64_t count) {
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>&) {
    const auto* const from = static_cast<const T*>(x);
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = table[from[i] - std::numeric_limits<T>::min()];
    });
  });
}

// What is added to numbers of 8 bits: as many more, or floats; or a row of floats for each of theirs.
struct Addition {
  at::ScalarType type;
  bool adds_floats;
  int64_t count, row;  // how many a row has, where there is one; else 0
  Dequantization a, b;
  Quantization to;
};

void add(const Addition& of, const void* a, const void* b, void* y) {
  for_type(of.type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const auto* const first = static_cast<const T*>(a);
    auto* const result = static_cast<T*>(y);
    const auto add_all = [&]<typename B>(const B* second, const auto& add_block) {
      if (of.row == 0) {
        return parallel_for(of.count, 1, [&](int64_t begin, int64_t end) {
          add_block(first + begin, of.a, second + begin, of.b, result + begin, end - begin, of.to);
        });
      }
      parallel_for(of.count / of.row, of.row, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * of.row; i < end * of.row; i += of.row)
          add_block(first + i, of.a, second, of.b, result + i, of.row, of.to);
      });
    };
    of.adds_floats ? add_all(static_cast<const float*>(b), kernels.add_floats)
                   : add_all(static_cast<const T*>(b), kernels.add);
  });
}

// None where b is neither like a nor a row.
std::optional<Addition> addition(const at::Tensor& a, const Dequantization& of_a, const at::Tensor& b,
                                 const Dequantization& of_b, at::ScalarType type, const Quantization& to) {
  const bool adds_floats = b.is_floating_point();
  if (!is_plain(a, type) || !is_plain(b, adds_floats ? c10::kFloat : type)) return {};
  const bool alike = a.is_non_overlapping_and_dense() && a.sizes() == b.sizes() && a.strides() == b.strides();
  const bool row = adds_floats && a.is_contiguous() && b.is_contiguous() && a.dim() > 0 && b.dim() > 0 &&
                   b.dim() <= a.dim() && b.numel() == b.size(-1) && b.size(-1) == a.size(-1);
  if (!alike && !row) return {};
  return Addition{type, adds_floats, a.numel(), alike ? 0 : b.numel(), of_a, of_b, to};
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
  const at::Tensor x = dense(given.to(c10::kFloat));
  const float* const from = x.const_data_ptr<float>();
  const auto& kernels = for_this_cpu<QuantizeKernels>();
  const Range range = parallel_reduce(
      x.numel(), 1, Range(), [&](int64_t begin, int64_t end) { return kernels.range(from + begin, end - begin); },
      joined);
  const float scale = range.low == range.high ? 1 : (range.high - range.low) / 255;
  const float zero_point = std::nearbyint(std::clamp(-range.low / scale, 0.F, 255.F));
  const bool is_number = zero_point == zero_point;
  const int64_t whole = is_number ? static_cast<int64_t>(zero_point) : 0;
  const at::Tensor y =
      is_number ? quantize(x, scale, whole, 0, 255, c10::kByte) : at::zeros_like(x, x.options().dtype(c10::kByte));
  return {y, at::scalar_tensor(scale, c10::kFloat), at::scalar_tensor(whole, c10::kByte)};
}

at::Tensor look_up(const at::Tensor& given, const at::Tensor& table) {
  const at::Tensor x = dense(given), y = work_tensor(x.sizes(), x.strides(), table.scalar_type());
  look_up(x.scalar_type(), x.const_data_ptr(), static_cast<const uint8_t*>(table.const_data_ptr()),
          static_cast<uint8_t*>(y.data_ptr()), x.numel());
  return y;
}

at::Tensor quantized_add(const at::Tensor& given, double a_scale, int64_t a_zero_point, const at::Tensor& b,
                         double b_scale, int64_t b_zero_point, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type) {
  const at::Tensor a = dense(given);
  const auto of = addition(a, dequantization(a_scale, a_zero_point), b, dequantization(b_scale, b_zero_point), type,
                           quantization(scale, zero_point, low, high));
  if (!of) {
    const at::Tensor sum =
        at::add(dequantize(a, a_scale, a_zero_point), b.is_floating_point() ? b : dequantize(b, b_scale, b_zero_point));
    return quantize(sum, scale, zero_point, low, high, type);
  }
  const at::Tensor y = work_tensor(a.sizes(), a.strides(), a.scalar_type());
  add(*of, a.const_data_ptr(), b.const_data_ptr(), y.data_ptr());
  return y;
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
       by = dequantization(of.arguments[1].toDouble(), of.arguments[2].toInt())](std::span<const Place> places) {
        dequantize(type, places[0].data, places[1].as<float>(), count, by);
      });
}

std::unique_ptr<PlannedCall> plan_quantize(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (x.scalar_type() != c10::kFloat || !lie_alike(x, of.results[0])) return {};
  return planned([type = of.arguments[5].toScalarType(), count = x.numel(),
                  by = quantization(of.arguments[1].toDouble(), of.arguments[2].toInt(), of.arguments[3].toInt(),
                                    of.arguments[4].toInt())](std::span<const Place> places) {
    quantize(type, places[0].as<float>(), places[1].data, count, by);
  });
}

std::unique_ptr<PlannedCall> plan_look_up(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!is_byte(x.scalar_type()) || !lie_alike(x, of.results[0])) return {};
  return planned(
      [type = x.scalar_type(), count = x.numel()](std::span<const Place> places) {
        look_up(type, places[0].data, places[1].as<uint8_t>(), places[2].as<uint8_t>(), count);
      },
      {{.result = 2, .argument = 0}});
}

std::unique_ptr<PlannedCall> plan_quantized_add(const PlannedOperands& of) {
  const auto number = [&](size_t i) { return of.arguments[i].toDouble(); };
  const auto integer = [&](size_t i) { return of.arguments[i].toInt(); };
  const auto by =
      addition(of.tensor(0), dequantization(number(1), integer(2)), of.tensor(3), dequantization(number(4), integer(5)),
               of.arguments[10].toScalarType(), quantization(number(6), integer(7), integer(8), integer(9)));
  if (!by || !lie_alike(of.tensor(0), of.results[0])) return {};
  return planned([by = *by](std::span<const Place> places) { add(by, places[0].data, places[1].data, places[2].data); },
                 {{.result = 2, .argument = 0}});
}

}  // namespace

void register_quantize() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("dynamic_quantize(Tensor x) -> (Tensor, Tensor, Tensor)", dynamic_quantize);
    m.def("dequantize(Tensor x, float scale, int zero_point) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, double, int64_t)>(dequantize));
    m.def("dequantize_along(Tensor x, Tensor scale, int axis) -> Tensor", dequantize_along);
    m.def("quantize(Tensor x, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, double, int64_t, int64_t, int64_t, at::ScalarType)>(quantize));
    m.def("look_up(Tensor x, Tensor table) -> Tensor",
          static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&)>(look_up));
    m.def(
        "quantized_add(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, "
        "float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
        quantized_add);
  });
  register_planner("onnx_torch::dequantize", plan_dequantize);
  register_planner("onnx_torch::quantize", plan_quantize);
  register_planner("onnx_torch::look_up", plan_look_up);
  register_planner("onnx_torch::quantized_add", plan_quantized_add);
}

}  // namespace onnxtorch::onednn
