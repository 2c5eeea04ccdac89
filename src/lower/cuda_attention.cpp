#include "lower/cuda_attention.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SDPBackend.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "lower/attention.h"
#include "passes/known_type.h"
#include "passes/registered.h"
#include "passes/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using at::Tensor;

// --- The operators ---------------------------------------------------------------------------------------------------

// A mask that ATen's kernels take for the one given. They multiply sums of scores and mask by log2(e) in float32, by
// which its lowest number, and that of bfloat16, overflows, and a row of it becomes zeros: half of it hides as well.
// Rows of nothing but -inf become zeros, too; they are NaN, unless that is what is wanted.
Tensor attention_mask(const Tensor& mask, bool without_nan) {
  if (mask.scalar_type() != at::kFloat && mask.scalar_type() != at::kBFloat16) {
    TORCH_CHECK(without_nan, "a mask of ", mask.scalar_type(), " cannot be given NaN");
    return mask;
  }
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kLow = std::numeric_limits<float>::lowest() / 2;
  const Tensor hidden = at::eq(mask, -kInfinity);
  Tensor result = at::clamp_min(mask, kLow).masked_fill_(hidden, -kInfinity);
  if (!without_nan) result.masked_fill_(hidden.all(-1, /*keepdim=*/true), std::numeric_limits<double>::quiet_NaN());
  return result;
}

// Whether a kernel may read rows of the matrices in pieces of 16 bytes.
bool is_aligned(const Tensor& t) {
  constexpr int64_t kElements = 8;
  bool aligned = t.storage_offset() % kElements == 0;
  for (int64_t i = 0; i + 1 < t.dim(); ++i) aligned = aligned && (t.size(i) == 1 || t.stride(i) % kElements == 0);
  return aligned;
}

// How ATen's operator is asked, besides its operands.
struct Asked {
  std::optional<double> scale;
  bool is_causal = false;
  bool enable_gqa = false;  // heads of keys and values serve several of queries each
};

// Whether ATen has a fused kernel for tensors of four dimensions, and one whose source says that it gives what the
// products would. Some of its kernels take neither empty tensors nor more batches or heads than a grid has blocks, and
// none a mask that broadcasts the scores.
bool is_fused(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
              const Asked& asked) {
  constexpr int64_t kMostBlocks = 65535;
  const int64_t batch = query.size(0), heads = query.size(1), rows = query.size(2), keys = key.size(2);
  const auto has_same_batch = [&](const Tensor& t) {
    return t.size(0) == batch && (asked.enable_gqa || t.size(1) == heads);
  };
  if (!has_same_batch(key) || !has_same_batch(value) || batch > kMostBlocks || heads > kMostBlocks) return false;
  if (query.numel() == 0 || key.numel() == 0 || value.numel() == 0) return false;
  if (!is_aligned(query) || !is_aligned(key) || !is_aligned(value)) return false;
  const bool mask_fits =
      !mask || (mask->size(-1) == keys && at::is_expandable_to(mask->sizes(), {batch, heads, rows, keys}));
  if (!mask_fits) return false;
  const auto kernel = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(query, key, value, mask, 0, asked.is_causal, asked.scale, asked.enable_gqa));
  return kernel == at::SDPBackend::flash_attention || kernel == at::SDPBackend::efficient_attention;
}

Tensor with_batch(Tensor t) {
  while (t.dim() < 4) t = t.unsqueeze(0);
  return t;
}

// softmax(query @ key * scale + mask) @ value. The mask is one of attention_mask.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                 double scale, bool without_nan) {
  const int64_t dims = query.dim();
  if ((dims == 3 || dims == 4) && key.dim() == dims && value.dim() == dims && (!mask || mask->dim() <= dims)) {
    const Tensor rows = with_batch(query), keys = with_batch(key).transpose(-2, -1), values = with_batch(value);
    const std::optional<Tensor> added = mask ? std::optional(with_batch(*mask)) : std::nullopt;
    if (is_fused(rows, keys, values, added, {.scale = scale})) {
      const Tensor result = at::scaled_dot_product_attention(rows, keys, values, added, 0, false, scale);
      return dims == 4 ? result : result.squeeze(0);
    }
  }
  Tensor scores = at::matmul(at::mul(query, scale), key);
  if (mask) scores = at::add(scores, *mask);
  const Tensor weights = at::softmax(scores, -1);
  return at::matmul(without_nan ? at::nan_to_num(weights, 0.0) : weights, value);
}

// ATen's operator of this name, which takes a mask of attention_mask. It computes the products where its own choice is
// a kernel that may refuse the operands.
Tensor attention_by_aten(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                         double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  TORCH_CHECK(dropout_p == 0, "attention with dropout");
  const bool has_batch = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && (!mask || mask->dim() <= 4);
  const std::optional<Tensor> given = mask && has_batch ? std::optional(with_batch(*mask)) : mask;
  if (has_batch && is_fused(query, key, value, given, {scale, is_causal, enable_gqa}))
    return at::scaled_dot_product_attention(query, key, value, given, 0, is_causal, scale, enable_gqa);
  const std::optional<Tensor> added = mask ? std::optional(added_mask(*mask, query.scalar_type())) : std::nullopt;
  return std::get<0>(
      at::_scaled_dot_product_attention_math(query, key, value, added, 0, is_causal, {}, scale, enable_gqa));
}

void register_operators() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("attention_mask(Tensor mask, bool without_nan) -> Tensor", attention_mask);
    m.def(
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale, "
        "bool without_nan) -> Tensor",
        attention);
    m.def(
        "scaled_dot_product_attention.of_aten(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float "
        "dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor",
        attention_by_aten);
  });
}

// --- In the graph ----------------------------------------------------------------------------------------------------

// ATen's kernels keep the scores in float32. Of float16 ONNX expects the rounding of each step; and of bfloat16 it
// depends on how scores are rounded what a mask leaves of a row that it hides as a whole by a number.
bool is_taken(const Attention& found) {
  const auto type = type_of(found.query);
  const bool type_fits = found.mask ? type == c10::kFloat && type_of(found.mask) == c10::kFloat
                                    : type == c10::kFloat || type == c10::kBFloat16;
  return type_fits && found.scale > 0 && std::isfinite(found.scale);
}

// The mask as attention_mask makes it; one for all that use it in the same way.
class Masks {
 public:
  jit::Value* of(jit::Value* mask, bool without_nan, const jit::Node* user) {
    jit::Value*& made = made_[{mask, without_nan}];
    if (!made) made = make(mask, without_nan, user);
    return made;
  }

 private:
  static jit::Value* make(jit::Value* mask, bool without_nan, const jit::Node* user) {
    jit::Node* const given = mask->node();
    const bool is_input = given->kind() == c10::prim::Param;
    const jit::WithInsertPoint at(is_input ? *given->owningBlock()->nodes().begin() : given->next());
    jit::Graph& graph = *given->owningGraph();
    jit::Value* const made = graph.insert(c10::Symbol::fromQualString("onnx_torch::attention_mask"),
                                          {mask, without_nan}, {}, user->sourceRange());
    return made->setType(mask->type());
  }

  std::map<std::pair<jit::Value*, bool>, jit::Value*> made_;
};

}  // namespace

void take_masks(Program& program) {
  register_operators();
  Masks masks;
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind() != c10::aten::scaled_dot_product_attention) return;
    jit::Value* const mask = node->input(3);
    if (!mask->mustBeNone()) node->replaceInput(3, masks.of(mask, /*without_nan=*/true, node));
    replace(node, "onnx_torch::scaled_dot_product_attention", node->inputs());
    node->destroy();
  });
}

void fuse_attention(Program& program) {
  register_operators();
  jit::Graph& graph = *program.graph;
  Masks masks;
  for_each_attention(program, [&](jit::Node* node, const Attention& found) {
    if (!is_taken(found)) return;
    jit::Value* const mask = found.mask ? masks.of(found.mask, found.without_nan, node) : nullptr;
    const jit::WithInsertPoint at(node);
    replace(node, "onnx_torch::scaled_dot_product_attention",
            {found.query, found.key, found.value, mask ? mask : graph.insertConstant(c10::IValue()),
             graph.insertConstant(found.scale), graph.insertConstant(found.without_nan)});
  });
}

}  // namespace onnxtorch
