#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "translate/program.h"

namespace onnxtorch {

// "float32", "bfloat16", "float16"; throws InputError for another.
c10::ScalarType precision_of(const std::string& name);

// Rounds the operands of float32 convolutions and products with constant weights to another type, and computes these in
// that type, or in float32 where the device has no instructions for it. Results are float32.
void lower_precision(Program& program, c10::ScalarType type, c10::Device device);

// Computes convolutions and products of the types for which this CPU has no instructions in float32, with results in
// their type.
void widen_halves(Program& program);

}  // namespace onnxtorch
