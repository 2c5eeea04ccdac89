#include "passes/cpu/packed/integer_weight.h"

#include <ATen/ATen.h>

#include "graph/symbols.h"
#include "passes/cpu/packed/nodes.h"

namespace onnxtorch {

namespace jit = torch::jit;

namespace {

// Gives a weight of 8-bit integers less their zero points as int8, with zero points that make the same of it.
std::optional<IntegerWeight> as_integers(const at::Tensor& weight, int64_t channel_dim) {
  const at::Tensor channels = weight.transpose(0, channel_dim).flatten(1);
  const at::Tensor low = channels.amin(1), high = channels.amax(1);
  const at::Tensor shifts = at::clamp_min(high - 127, 0) + at::clamp_max(low + 128, 0);
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[channel_dim] = -1;
  const at::Tensor numbers = weight - shifts.reshape(shape), bytes = numbers.clamp(-128, 127).to(c10::kChar);
  if (!at::eq(bytes, numbers).all().item<bool>()) return {};
  return IntegerWeight{bytes, at::neg(shifts).to(c10::kInt)};
}

}  // namespace

bool is_computed_of_inputs(const jit::Node* node) {
  return (node->kind().is_aten() || node->kind() == kDequantizeLinear) && node->outputs().size() == 1;
}

std::optional<c10::IValue> computed_value(const jit::Value* value, const Constants& constants) {
  if (auto known = constants(value)) return known;
  const jit::Node* const node = value->node();
  if (!is_computed_of_inputs(node)) return {};
  jit::Stack stack;
  for (const jit::Value* input : node->inputs()) {
    auto known = computed_value(input, constants);
    if (!known) return {};
    stack.push_back(*std::move(known));
  }
  try {
    node->getOperation()(stack);
  } catch (const std::exception&) {
    return {};  // the run will say what is wrong
  }
  return stack.back();
}

std::optional<at::Tensor> computed(const jit::Value* value, const Constants& constants) {
  const auto known = computed_value(value, constants);
  return known && known->isTensor() ? std::optional(known->toTensor()) : std::nullopt;
}

bool is_along(const at::Tensor& t, int64_t dim, int64_t size, int64_t dims) {
  if (t.dim() > dims) return false;
  const int64_t after = dims - 1 - dim;
  return t.numel() == 1 || (t.dim() > after && t.numel() == size && t.size(-1 - after) == size);
}

std::optional<IntegerWeight> integer_weight(const jit::Value* value, int64_t channel_dim, const Constants& constants) {
  if (const auto known = constants.tensor(value)) {
    const bool fits = known->defined() && known->is_floating_point() && known->numel() > 0 && known->dim() > 1;
    return fits ? as_integers(*known, channel_dim) : std::nullopt;
  }
  const jit::Node* const steps = as(value, kDequantizeLinear);
  return steps && steps->input(1)->mustBeNone() ? weight_of(steps, channel_dim, constants) : std::nullopt;
}

std::optional<IntegerWeight> weight_of(const jit::Node* node, int64_t channel_dim, const Constants& constants) {
  const auto numbers = computed(node->input(0), constants);
  const auto zero_points =
      node->input(2)->mustBeNone() ? at::zeros({1}, c10::kFloat) : computed(node->input(2), constants);
  if (!zero_points || !numbers || !numbers->defined() || !is_8_bit(numbers->scalar_type())) return {};
  const bool fits = numbers->dim() > 1 && numbers->numel() > 0 &&
                    is_along(*zero_points, channel_dim, numbers->size(channel_dim), numbers->dim());
  return fits ? std::optional(IntegerWeight{*numbers, zero_points->to(c10::kInt)}) : std::nullopt;
}

c10::intrusive_ptr<Packed> packed_integers(const jit::Node* product, const IntegerWeight& weight,
                                           const Constants& constants) {
  const auto& [numbers, zero_points] = weight;
  if (product->kind() != c10::aten::convolution)
    return numbers.dim() == 2 ? packed_integers(Linear{numbers, {}}, zero_points) : nullptr;
  const auto ints = [&](size_t i) { return constants.get<std::vector<int64_t>>(product->input(i)); };
  const auto stride = ints(3), padding = ints(4), dilation = ints(5);
  const auto transposed = constants.get<bool>(product->input(6));
  const auto groups = constants.get<int64_t>(product->input(8));
  const bool fits = stride && padding && dilation && groups && !transposed.value_or(true) && numbers.dim() <= 5 &&
                    go_together(numbers, *groups, {&*stride, &*padding, &*dilation});
  return fits ? packed_integers(Convolution{numbers, {}, *stride, *padding, *dilation, *groups}, zero_points) : nullptr;
}

}  // namespace onnxtorch
