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

// Gives the type of a tensor with pads around it, those of the innermost dimension first.
c10::TypePtr type_within(const jit::Value* x, const jit::Value* pads, const Constants& constants) {
  const auto& type = x->type()->expectRef<c10::TensorType>();
  auto sizes = type.sizes().sizes();
  const auto known = constants.get<std::vector<int64_t>>(pads);
  if (!sizes || !known || known->size() > 2 * sizes->size()) return c10::TensorType::get()->withScalarType(type_of(x));
  for (size_t i = 0; i < known->size(); ++i) {
    auto& size = (*sizes)[sizes->size() - 1 - i / 2];
    if (size) *size += (*known)[i];
  }
  return type.withSymbolicShapes(c10::SymbolicShape(*std::move(sizes)));
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
  return steps && steps->input(1)->mustBeNone() ? weight_of(steps->input(0), steps->input(2), channel_dim, constants)
                                                : std::nullopt;
}

std::optional<IntegerWeight> weight_of(const jit::Value* numbers, const jit::Value* zero_points, int64_t channel_dim,
                                       const Constants& constants) {
  const auto integers = computed(numbers, constants);
  const auto zeros = zero_points->mustBeNone() ? at::zeros({1}, c10::kInt) : computed(zero_points, constants);
  if (!zeros || !integers || !integers->defined() || !is_8_bit(integers->scalar_type())) return {};
  const bool fits = integers->dim() > 1 && integers->numel() > 0 &&
                    is_along(*zeros, channel_dim, integers->size(channel_dim), integers->dim());
  return fits ? std::optional(IntegerWeight{*integers, zeros->to(c10::kInt)}) : std::nullopt;
}

std::optional<IntegerWeight> weight_of_product(const jit::Node* product, const Constants& constants) {
  const int64_t channel_dim = is_convolution(product) ? 0 : 1;
  const auto differences = integer_weight(product->input(1), channel_dim, constants);
  return differences ? differences : weight_of(product->input(1), product->input(3), channel_dim, constants);
}

jit::Value* padded_images(jit::Graph& graph, const jit::Node* product, const jit::NamedValue& fill,
                          const Constants& constants) {
  jit::Value *const x = product->input(0), *const pads = is_convolution(product) ? product->input(4) : nullptr;
  if (!pads || pads->mustBeNone()) return x;
  jit::Value* const result = graph.insert(c10::aten::constant_pad_nd, {x, pads, fill}, {}, product->sourceRange());
  result->setType(type_within(x, pads, constants));
  return result;
}

bool is_convolution(const jit::Node* product) {
  return product->kind() == c10::aten::convolution || product->kind() == kConvInteger ||
         product->kind() == kQLinearConv;
}

c10::intrusive_ptr<Packed> packed_integers(const jit::Node* product, const IntegerWeight& weight,
                                           const Constants& constants) {
  const auto& [numbers, zero_points] = weight;
  const bool is_plain = product->kind() == c10::aten::convolution;
  if (!is_convolution(product)) return numbers.dim() == 2 ? packed_integers(Linear{numbers, {}}, zero_points) : nullptr;
  const auto ints = [&](const char* name) { return constants.get<std::vector<int64_t>>(product->namedInput(name)); };
  const auto stride = ints("stride"), padding = ints("padding"), dilation = ints("dilation");
  const auto groups = constants.get<int64_t>(product->namedInput("groups"));
  const bool transposed = is_plain && constants.get<bool>(product->namedInput("transposed")).value_or(true);
  const bool fits = stride && padding && dilation && groups && !transposed && numbers.dim() <= 5 &&
                    go_together(numbers, *groups, {&*stride, &*padding, &*dilation});
  return fits ? packed_integers(Convolution{numbers, {}, *stride, *padding, *dilation, *groups}, zero_points) : nullptr;
}

}  // namespace onnxtorch
