#include "kernels/standard/small_float.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "base/element_type.h"
#include "base/parallel.h"
#include "kernels/standard/cast_small_float.h"

namespace onnxtorch {
namespace {

template <typename Source, typename Result, typename Convert>
void convert_each(const at::Tensor& source, at::Tensor& result, const Convert& convert) {
  const Source* from = source.const_data_ptr<Source>();
  Result* to = static_cast<Result*>(result.mutable_data_ptr());
  constexpr int64_t kCost = 8;  // of an element
  parallel_for(source.numel(), kCost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = convert(unpack(from[i]));
  });
}

template <typename Source>
void cast_from(const at::Tensor& source, at::Tensor& result, const SmallFloatCast& cast) {
  if (result.scalar_type() == at::kHalf) {
    convert_each<Source, uint16_t>(source, result, [&](const Unpacked& x) { return cast.half(x); });
  } else {
    convert_each<Source, uint8_t>(source, result, [&](const Unpacked& x) { return cast.code(x); });
  }
}

void cast_into(at::Tensor& result, const at::Tensor& source, const SmallFloatCast& cast) {
  AT_DISPATCH_V2(source.scalar_type(), "cast_small_float", AT_WRAP([&] { cast_from<scalar_t>(source, result, cast); }),
                 at::kFloat, at::kDouble, at::kLong, at::kUInt64);
}

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

}  // namespace

at::Tensor cast_small_float_meta(const at::Tensor& x, int64_t to, bool /*saturate*/, std::string_view /*round_mode*/) {
  return at::empty_like(x, x.options().dtype(storage_dtype(small_float_numbered(to))), at::MemoryFormat::Contiguous);
}

SmallFloatCast small_float_cast(int64_t to, bool saturate, std::string_view round_mode) {
  SmallFloatCast cast{
      .format = {}, .e8m0 = false, .saturate = saturate, .rounding = rounding_named(round_mode), .halves = {}};
  const ElementType type = small_float_numbered(to);
  cast.e8m0 = type == ElementType::Float8e8m0;
  if (cast.e8m0) return cast;
  cast.format = *std::ranges::find(kSmallFloats, type, &SmallFloat::type);
  for (int code = 0; code < 64 && storage_dtype(type) == at::kHalf; ++code) {
    cast.halves[code] = c10::detail::fp16_ieee_from_fp32_value(decode(code, cast.format));
  }
  return cast;
}

c10::ScalarType small_float_source(c10::ScalarType type) {
  TORCH_CHECK(!c10::isComplexType(type), "complex numbers have no cast to a floating type of 8, 6 or 4 bits");
  if (type == at::kDouble || type == at::kUInt64) return type;
  return c10::isIntegralType(type, /*includeBool=*/true) ? at::kLong : at::kFloat;
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // Casts x to the element type that TensorProto.DataType numbers `to`, in the dtype that stores it; the rules are
  // those of Cast. round_mode ("up", "down", "nearest") is for float8e8m0. A uint64 x must come as torch's own uint64.
  m.def("cast_small_float(Tensor x, int to, bool saturate, str round_mode) -> Tensor");
}

TORCH_LIBRARY_IMPL(onnx_torch, CPU, m) { m.impl("cast_small_float", &cast_small_float<&cast_into>); }
TORCH_LIBRARY_IMPL(onnx_torch, Meta, m) { m.impl("cast_small_float", &cast_small_float_meta); }

}  // namespace onnxtorch
