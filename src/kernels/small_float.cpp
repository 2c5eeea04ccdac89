#include "kernels/small_float.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

namespace onnxtorch {
namespace {

Rounding rounding_named(std::string_view name) {
  if (name == "up") return Rounding::Up;
  if (name == "down") return Rounding::Down;
  if (name == "nearest") return Rounding::Nearest;
  TORCH_CHECK(false, "round_mode must be \"up\", \"down\" or \"nearest\", not \"", name, "\"");
}

ElementType small_float_numbered(int64_t data_type) {
  TORCH_CHECK(data_type >= 0 && data_type <= static_cast<int64_t>(ElementType::Float6e3m2) &&
                  is_small_float(static_cast<ElementType>(data_type)),
              "element type ", data_type, " is not a floating type of 8, 6 or 4 bits");
  return static_cast<ElementType>(data_type);
}

// The type that holds every value of `type` exactly and that unpack() takes.
c10::ScalarType source_dtype(c10::ScalarType type) {
  TORCH_CHECK(!c10::isComplexType(type), "complex numbers have no cast to a floating type of 8, 6 or 4 bits");
  if (type == at::kDouble || type == at::kUInt64) return type;
  return c10::isIntegralType(type, /*includeBool=*/true) ? at::kLong : at::kFloat;
}

template <typename Source, typename Result, typename Convert>
void convert_each(const at::Tensor& source, at::Tensor& result, const Convert& convert) {
  const Source* from = source.const_data_ptr<Source>();
  Result* to = static_cast<Result*>(result.mutable_data_ptr());
  at::parallel_for(0, source.numel(), /*grain_size=*/4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = convert(unpack(from[i]));
  });
}

template <typename Source>
void cast_from(const at::Tensor& source, at::Tensor& result, ElementType to, bool saturate, Rounding rounding) {
  if (to == ElementType::Float8e8m0) {
    return convert_each<Source, uint8_t>(source, result,
                                         [=](const Unpacked& x) { return encode_e8m0(x, saturate, rounding); });
  }
  const SmallFloat format = *std::ranges::find(kSmallFloats, to, &SmallFloat::type);
  if (result.scalar_type() != at::kHalf) {
    return convert_each<Source, uint8_t>(source, result,
                                         [=](const Unpacked& x) { return encode(x, format, saturate); });
  }
  std::array<at::Half, 64> values;
  for (int code = 0; code < 64; ++code) values[code] = decode(code, format);
  convert_each<Source, at::Half>(source, result,
                                 [&](const Unpacked& x) { return values[encode(x, format, saturate)]; });
}

at::Tensor cast_small_float_meta(const at::Tensor& x, int64_t to, bool /*saturate*/, std::string_view /*round_mode*/) {
  return at::empty_like(x, x.options().dtype(storage_dtype(small_float_numbered(to))), at::MemoryFormat::Contiguous);
}

at::Tensor cast_small_float(const at::Tensor& x, int64_t to, bool saturate, std::string_view round_mode) {
  const Rounding rounding = rounding_named(round_mode);
  at::Tensor result = cast_small_float_meta(x, to, saturate, round_mode);
  const at::Tensor source = x.to(source_dtype(x.scalar_type())).contiguous();
  AT_DISPATCH_V2(source.scalar_type(), "cast_small_float", AT_WRAP([&] {
                   cast_from<scalar_t>(source, result, static_cast<ElementType>(to), saturate, rounding);
                 }),
                 at::kFloat, at::kDouble, at::kLong, at::kUInt64);
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // x as the element type that TensorProto.DataType numbers `to`, in the dtype that stores it; the rules are those of
  // Cast. round_mode ("up", "down", "nearest") is for float8e8m0. A uint64 x must come as torch's own uint64.
  m.def("cast_small_float(Tensor x, int to, bool saturate, str round_mode) -> Tensor");
}

TORCH_LIBRARY_IMPL(onnx_torch, CPU, m) { m.impl("cast_small_float", &cast_small_float); }
TORCH_LIBRARY_IMPL(onnx_torch, Meta, m) { m.impl("cast_small_float", &cast_small_float_meta); }

}  // namespace onnxtorch
