// Lower precision for float32 convolutions and products, and the casts that it takes.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "graph/program.h"

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace onnxtorch {

// Gives the type of "float32", "bfloat16" or "float16"; throws InputError for another name.
c10::ScalarType precision_of(const std::string& name);

// Rounds the operands of float32 convolutions and products with constant weights to the target's type, and computes
// these in that type, or in float32 where the device has no instructions for it. Results are float32.
void lower_precision(Program& program);

// Tells whether the device has instructions for products of the type.
bool has_products(c10::ScalarType type, c10::Device device);

// Casts the value, of floats, to another type, or rounds it to that type in float32, at the graph's insertion point. An
// error in it is the user's.
torch::jit::Value* insert_cast(torch::jit::Graph& graph, torch::jit::Value* value, c10::ScalarType type,
                               const torch::jit::Node& user);
torch::jit::Value* insert_rounding(torch::jit::Graph& graph, torch::jit::Value* value, c10::ScalarType type,
                                   const torch::jit::Node& user);

}  // namespace onnxtorch
