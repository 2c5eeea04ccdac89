// Conversions between the layout a type has outside (numpy, ml_dtypes, TensorProto unpacked) and its storage in a
// graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "base/element_type.h"

namespace onnxtorch {

// Gives the dtype of a type outside: torch's own where it has one, one byte per element for the types of 8 bits and
// fewer.
c10::ScalarType native_dtype(ElementType type);

// Converts a tensor to its storage, and back. The result may be a view, but never for types whose storage differs from
// the native layout.
at::Tensor to_storage(ElementType type, const at::Tensor& native);
at::Tensor from_storage(ElementType type, const at::Tensor& stored);

// Unpacks elements of 2, 4 and 6 bits, packed from the lowest bit up, to one byte per element (zero-extended).
void unpack_bits(std::string_view packed, int bits, std::span<uint8_t> codes);

}  // namespace onnxtorch
