// Products of quantized matrices, for the operators that fuse one with what follows it.
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

// Input i, a zero point: absent where it is zero for certain.
Value zero_point(Translator& t, const NodeView& n, size_t i);

struct Matrix {
  Value x, zero_point;
};

// The product of integers less their zero points, as int32.
Value integer_product(Translator& t, const Matrix& a, const Matrix& b);

// A scale of a matrix as float, which broadcasts to it: one for all, or one for each column.
Value column_scale(Translator& t, const Value& scale);

}  // namespace onnxtorch
