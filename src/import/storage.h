// Between the layout a type has outside (numpy, ml_dtypes, TensorProto unpacked) and its storage inside a graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "base/element_type.h"

namespace onnxtorch {

// The dtype of a type outside: torch's own where it has one, one byte an element for the types of 8 bits and fewer.
c10::ScalarType native_dtype(ElementType type);

// May return a view of `native`; never for types whose storage differs from the native layout.
at::Tensor to_storage(ElementType type, const at::Tensor& native);
at::Tensor from_storage(ElementType type, const at::Tensor& stored);

// 2-, 4- and 6-bit elements, packed from the lowest bit up, to one byte an element (zero-extended).
void unpack_bits(std::string_view packed, int bits, std::span<uint8_t> codes);

}  // namespace onnxtorch
