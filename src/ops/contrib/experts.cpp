// Mixtures of experts: MoE, QMoE; and the operators that are left of training: TorchEmbedding, IsAllFinite.
#include <array>

#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// One of the products that an expert computes, by tensors of all experts. Without scales the weights are as they are.
struct ExpertProduct {
  Value weights, scales, zero_points, bias;
  int64_t bits = 8;
};

using ExpertProducts = std::array<ExpertProduct, 3>;  // FC1, FC2, FC3

Values routes(Translator& t, const NodeView& n, const Value& scores) {
  const int64_t k = n.attr_int("k");
  if (n.attr_int("use_sparse_mixer") != 0) return t.call_all("sparse_mixer", {scores, k});
  const bool normalize = n.attr_int("normalize_routing_weights") != 0;
  if (n.schema()->name == "MoE") return t.call_all("moe_routes", {scores, k, normalize});
  return t.call_all("qmoe_routes", {scores, n.tensor(14), k, normalize});
}

Value mixture(Translator& t, const NodeView& n, const Value& x, const ExpertProducts& products,
              const std::string& quant_type = "", int64_t block_size = 0) {
  const Values route = routes(t, n, t.call("router_scores", {n.tensor(1), x, products[0].weights}));
  std::vector<Arg> args{x, route[0], route[1]};
  std::vector<int64_t> bits;
  for (const ExpertProduct& fc : products) {
    args.insert(args.end(), {fc.weights, fc.scales, fc.zero_points, fc.bias});
    bits.push_back(fc.bits);
  }
  args.insert(args.end(), {quant_type, bits, block_size, n.attr_string("activation_type"), n.attr_int("swiglu_fusion"),
                           n.attr_float("activation_alpha"), n.attr_float("activation_beta"), none});
  if (n.has_attribute("swiglu_limit")) args.back() = n.attr_float("swiglu_limit");
  return t.call("aten::reshape", {t.call("mixture_of_experts", args), t.call("aten::size", {n.tensor(0)})});
}

Value expert_matrices(Translator& t, const NodeView& n, size_t i, const Value& x, int64_t bits, bool has_its_columns) {
  return n.has(i) ? t.call("expert_matrices", {n.tensor(i), x, bits, has_its_columns}) : Value{};
}

Values moe(Translator& t, const NodeView& n) {
  const Value x = t.call("token_rows", {n.tensor(0)});
  const auto product = [&](size_t weights, bool has_its_columns) {
    return ExpertProduct{expert_matrices(t, n, weights, x, 8, has_its_columns), {}, {}, n.tensor(weights + 1)};
  };
  return {mixture(t, n, x, {{product(2, true), product(4, false), product(6, true)}})};
}

// --- QMoE ---

// Gives the size of a block; 0: each row is one block.
int64_t quantized_block_size(const NodeView& n, const std::string& quant_type) {
  if (quant_type == "fp4" || quant_type == "wfp4afp8") return 32;
  if (quant_type == "nvfp4") return 16;
  return n.has_attribute("block_size") ? n.attr_int("block_size") : 0;
}

int64_t weight_bits(const NodeView& n, const std::string& quant_type, const std::string& product) {
  if (quant_type == "fp8") return 8;
  if (quant_type != "int") return 4;
  const std::string own = product + "_expert_weight_bits";
  const int64_t bits = n.attr_int(n.has_attribute(own) ? own : "expert_weight_bits");
  if (bits != 2 && bits != 4 && bits != 8) n.fail("weights have 2, 4 or 8 bits");
  return bits;
}

void check_quantization(const NodeView& n, const std::string& type, int64_t block_size) {
  const bool is_int = type == "int", has_own_scales = is_int || (type == "fp8" && block_size > 0);
  if (!is_int && type != "fp4" && type != "nvfp4" && type != "fp8" && type != "wfp4afp8") {
    n.fail("quant_type is int, fp4, nvfp4, fp8 or wfp4afp8");
  }
  if ((type == "fp8") != (n.element(2) == ElementType::Float8e4m3fn)) n.fail("weights of another type than quant_type");
  if (!is_int && (n.has(11) || n.has(12) || n.has(13))) n.fail("zero points of floats");
  if (!has_own_scales && !(n.has(15) && n.has(16))) n.fail("fc1_global_scale and fc2_global_scale are needed");
  if (n.attr_int("weights_prepacked") > 0) n.unsupported("weights in the layout of one of onnxruntime's kernels");
}

// Translates QMoE. wfp4afp8 is computed as fp4 is, as on devices without products of such floats: scales of activations
// are for kernels that round them.
Values qmoe(Translator& t, const NodeView& n) {
  const std::string type = n.attr_string("quant_type");
  const bool is_int = type == "int";
  const int64_t block_size = quantized_block_size(n, type);
  check_quantization(n, type, block_size);

  const Value x = t.call("token_rows", {n.tensor(0)});
  const auto product = [&](const char* name, size_t first, size_t zero_points, Value global_scale) {
    if (!n.has(first)) return ExpertProduct{};
    if (is_int) global_scale = {};
    const int64_t bits = weight_bits(n, type, name);
    const Value weights = is_int ? expert_matrices(t, n, first, x, bits, first != 5) : n.tensor(first);
    const Value scales = t.call("expert_scales", {weights, n.tensor(first + 1), global_scale, type, bits, block_size});
    const Value zeros = is_int ? t.call("expert_zero_points", {n.tensor(zero_points), scales, bits}) : Value{};
    return ExpertProduct{weights, scales, zeros, n.tensor(first + 2), bits};
  };
  const ExpertProducts products{
      {product("fc1", 2, 11, n.tensor(15)), product("fc2", 5, 12, n.tensor(16)), product("fc3", 8, 13, {})}};
  return {mixture(t, n, x, products, type, block_size)};
}

// --- Training ---

Values is_all_finite(Translator& t, const NodeView& n) {
  const bool isinf_only = n.attr_int("isinf_only") != 0, isnan_only = n.attr_int("isnan_only") != 0;
  if (isinf_only && isnan_only) n.fail("isinf_only and isnan_only exclude one another");
  Value all;
  for (const Value& x : n.tensors()) {
    const Value one = t.call("has_only_finite", {x, isinf_only, isnan_only});
    all = all.absent() ? one : t.call("aten::logical_and", {all, one});
  }
  return {all};
}

}  // namespace

void register_contrib_experts_ops(Registry& r) {
  r.op(kMicrosoft, "IsAllFinite").since(1, is_all_finite);
  r.op(kMicrosoft, "MoE").since(1, moe);
  r.op(kMicrosoft, "QMoE").since(1, qmoe);
  r.op(kMicrosoft, "TorchEmbedding").since(1, script("torch_embedding"));
}

}  // namespace onnxtorch
