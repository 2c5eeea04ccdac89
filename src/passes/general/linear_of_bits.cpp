#include "passes/general/linear_of_bits.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include "graph/known_type.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The scripts of src/ops/scripts/contrib/block_quantization.py.
const auto kMatMulNBits = c10::Symbol::fromQualString("onnx_torch::matmul_nbits"),
           kMatMulCodes = c10::Symbol::fromQualString("onnx_torch::matmul_codes");

bool is_floating(const at::Tensor& t) { return t.defined() && c10::isFloatingType(t.scalar_type()); }

// Gives one zero point for each block of each row, as floats; undefined where they are absent, nothing where they do
// not fit.
std::optional<at::Tensor> zero_points_of(const at::Tensor& given, const LinearOfBits& of) {
  const int64_t rows = of.numbers.size(0), blocks = of.numbers.size(1), bytes = (blocks * of.bits + 7) / 8;
  if (!given.defined()) return given;
  if (given.scalar_type() != c10::kByte) {
    return given.numel() == rows * blocks ? std::optional(given.to(c10::kFloat).reshape({rows, blocks})) : std::nullopt;
  }
  if (given.numel() != rows * bytes) return {};
  return unpacked_bits(given.reshape({rows, bytes}), of.bits).narrow(1, 0, blocks).to(c10::kFloat);
}

// Tells whether x is rounded to int8, where the node allows it: as onnxruntime does, which multiplies in float32 where
// zero points are floats, and weights of 2 bits where blocks are small or large.
bool rounds_x(int64_t accuracy_level, const LinearOfBits& of, const at::Tensor& zero_points) {
  constexpr int64_t kInt8 = 4;
  return accuracy_level == kInt8 && (of.bits != 2 || (of.block_size >= 32 && of.block_size <= 128)) &&
         (!zero_points.defined() || zero_points.scalar_type() == c10::kByte);
}

bool multiplies_floats(const jit::Node* node) {
  const auto type = type_of(node->namedInput("A"));
  return type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
}

// Gives the weight of a product with codes, whose blocks do not go from one row to the next.
std::optional<LinearOfBits> linear_of_codes(const jit::Node* node, const Constants& constants) {
  const auto tensor = [&](const char* name) { return constants.tensor(node->namedInput(name)); };
  const auto number = [&](const char* name) { return constants.get<int64_t>(node->namedInput(name)); };
  const auto codes = tensor("B"), scales = tensor("absmax"), values = tensor("values");
  const auto in = number("K"), out = number("N"), block_size = number("block_size");
  if (!codes || !scales || !values || !in || !out || !block_size || *in <= 0 || *out <= 0) return {};
  if (*in % *block_size != 0 || codes->scalar_type() != c10::kByte || codes->numel() % *out != 0 ||
      codes->numel() / *out != *in / 2)
    return {};
  const int64_t blocks = *in / *block_size;
  if (!is_floating(*scales) || scales->numel() != *out * blocks) return {};
  const at::Tensor first_lower = at::bitwise_or(at::bitwise_left_shift(*codes, 4), at::bitwise_right_shift(*codes, 4));
  LinearOfBits result{first_lower.reshape({*out, blocks, *block_size / 2}), *in, 4, *block_size,
                      scales->to(c10::kFloat).reshape({*out, blocks}),      {},  {}};
  result.values = *values;
  return result;
}

}  // namespace

bool has_few_bits(c10::Symbol script) { return script == kMatMulNBits || script == kMatMulCodes; }

std::optional<LinearOfBits> linear_of_bits(const jit::Node* node, const Constants& constants) {
  if (!has_few_bits(node->kind())) return {};
  if (!multiplies_floats(node)) return {};
  if (node->kind() == kMatMulCodes) return linear_of_codes(node, constants);
  if (!node->namedInput("g_idx")->mustBeNone()) return {};
  const auto tensor = [&](const char* name) { return constants.tensor(node->namedInput(name)); };
  const auto number = [&](const char* name) { return constants.get<int64_t>(node->namedInput(name)); };
  const auto numbers = tensor("B"), scales = tensor("scales"), zero_points = tensor("zero_points"),
             bias = tensor("bias");
  const auto in = number("K"), out = number("N"), bits = number("bits"), block_size = number("block_size"),
             accuracy_level = number("accuracy_level");
  if (!numbers || !scales || !zero_points || !bias || !in || !out || !bits || !block_size || !accuracy_level) return {};
  if (*in <= 0 || *out <= 0) return {};
  const int64_t blocks = (*in - 1) / *block_size + 1;
  if (!numbers->defined() || numbers->scalar_type() != c10::kByte ||
      numbers->sizes() != at::IntArrayRef({*out, blocks, *block_size * *bits / 8})) {
    return {};
  }
  if (!is_floating(*scales) || scales->numel() != *out * blocks) return {};
  if (bias->defined() && (!is_floating(*bias) || bias->sizes() != at::IntArrayRef({*out}))) return {};
  LinearOfBits result{*numbers, *in, *bits, *block_size, scales->to(c10::kFloat).reshape({*out, blocks}), {}, *bias};
  const auto of_blocks = zero_points_of(*zero_points, result);
  if (!of_blocks) return {};
  result.zero_points = *of_blocks;
  result.rounds_x = rounds_x(*accuracy_level, result, *zero_points);
  return result;
}

}  // namespace onnxtorch
