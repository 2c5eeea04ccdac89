#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "translate/program.h"

namespace onnxtorch {

// "float32", "bfloat16", "float16"; throws InputError for another.
c10::ScalarType precision_of(const std::string& name);

// Computes float32 convolutions and products with constant weights in another type, with results in float32.
void lower_precision(Program& program, c10::ScalarType type);

// Computes float16 convolutions and products in float32, with results in float16.
void widen_halves(Program& program);

}  // namespace onnxtorch
