// The functions that the standard's operators on quantized numbers share with those that onnxruntime adds.
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

Values quantize_linear(Translator& t, const NodeView& n);
Values dequantize_linear(Translator& t, const NodeView& n);
Values qlinear_conv(Translator& t, const NodeView& n);

// Gives input i, a zero point: absent where it is zero for certain.
Value zero_point(Translator& t, const NodeView& n, size_t i);

// Quantizes x in steps of `scale`, or of one, to an integer type or to small floats.
Value quantized(Translator& t, Value x, const Value& scale, const Value& zero_point, ElementType to,
                bool saturate = true);

// Gives x less its zero point, in steps of `scale` or of one.
Value dequantized(Translator& t, const Value& x, const Value& scale, const Value& zero_point, ElementType type);

// Gives a scale or zero point as `type`: one for all, or as a script lays it out, per_row or per_column.
Value laid_out(Translator& t, const char* script, const Value& parameter, ElementType type);

struct QuantizedMatrix {
  Value x, zero_point;
};

// Gives the product of two matrices less their zero points as int32. A script that is kept computes it.
Value integer_product(Translator& t, const QuantizedMatrix& a, const QuantizedMatrix& b);

// Gives a scale of a matrix as float, which broadcasts to it: one for all, or one for each column.
Value column_scale(Translator& t, const Value& scale);

}  // namespace onnxtorch
