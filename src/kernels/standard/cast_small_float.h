// The parts that the devices' kernels of cast_small_float share.
#pragma once

#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>

#include <string_view>

#include "kernels/standard/small_float.h"

namespace onnxtorch {

at::Tensor cast_small_float_meta(const at::Tensor& x, int64_t to, bool saturate, std::string_view round_mode);

SmallFloatCast small_float_cast(int64_t to, bool saturate, std::string_view round_mode);

// Gives the type that holds every value of `type` exactly and that unpack() takes.
c10::ScalarType small_float_source(c10::ScalarType type);

// Casts by `cast_into`, which fills the result it is given, from a contiguous tensor of a small_float_source().
template <void (*cast_into)(at::Tensor& result, const at::Tensor& source, const SmallFloatCast& cast)>
at::Tensor cast_small_float(const at::Tensor& x, int64_t to, bool saturate, std::string_view round_mode) {
  at::Tensor result = cast_small_float_meta(x, to, saturate, round_mode);
  cast_into(result, x.to(small_float_source(x.scalar_type())).contiguous(), small_float_cast(to, saturate, round_mode));
  return result;
}

}  // namespace onnxtorch
