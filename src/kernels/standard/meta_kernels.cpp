#include "kernels/standard/meta_kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MetaFunctions.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_map>

namespace onnxtorch {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::KernelFunction;
using OptionalTensor = std::optional<Tensor>;

// --- Shapes of operators for which ATen has no kernel on the meta device ---

Tensor same(const Tensor& self) { return at::empty(self.sizes(), self.options()); }
Tensor same_with_list(const Tensor& self, IntArrayRef) { return same(self); }
Tensor same_with_lists(const Tensor& self, IntArrayRef, IntArrayRef) { return same(self); }
Tensor same_with_numbers(const Tensor& self, std::optional<double>, std::optional<double>, std::optional<double>) {
  return same(self);
}

Tensor real_part(const Tensor& self) {
  return at::empty(self.sizes(), self.options().dtype(c10::toRealValueType(self.scalar_type())));
}

Tensor one_element(const Tensor& self) { return at::empty({}, self.options()); }

Tensor truth(const Tensor& self) { return at::empty(self.sizes(), self.options().dtype(at::kBool)); }

Tensor truth_of_both(const Tensor& self, const Tensor& other) {
  return at::empty(at::infer_size(self.sizes(), other.sizes()), self.options().dtype(at::kBool));
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  return at::empty(sizes, condition.options().dtype(at::result_type(self, other)));
}

template <auto function, typename... Arguments>
const Tensor& into(Arguments... arguments, const Tensor& out) {
  return out.resize_(function(arguments...).sizes());
}

Tensor dot(const Tensor& self, const Tensor&) { return one_element(self); }

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  auto sizes = self.sizes().vec();
  if (!sizes.empty()) sizes.at(at::maybe_wrap_dim(dim, self.dim())) = index.numel();
  return at::empty(sizes, self.options());
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  auto sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return at::empty(sizes, weight.options());
}

// Gives a number for each dimension; a single one stands for all.
std::vector<int64_t> for_each_dim(IntArrayRef list, size_t dims) {
  TORCH_CHECK(list.size() == 1 || list.size() == dims, "expected ", dims, " numbers, found ", list.size());
  return list.size() == 1 ? std::vector<int64_t>(dims, list[0]) : list.vec();
}

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor&, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  const int64_t channels = weight.size(transposed ? 0 : 1) * (transposed ? 1 : groups);
  TORCH_CHECK(input.dim() > 2 && input.dim() == weight.dim() && input.size(1) == channels,
              "a convolution of sizes that do not fit");
  TORCH_CHECK(std::ranges::all_of(stride, [](int64_t each) { return each > 0; }), "a stride must be positive");
  const size_t dims = input.dim() - 2;
  const auto strides = for_each_dim(stride, dims), pads = for_each_dim(padding, dims),
             dilations = for_each_dim(dilation, dims), output_pads = for_each_dim(output_padding, dims);
  const auto sizes = transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), pads, output_pads, strides,
                                                              dilations, groups)
                                : at::native::conv_output_size(input.sizes(), weight.sizes(), pads, strides, dilations);
  return at::empty(sizes, input.options());
}

using Normalized = std::tuple<Tensor, Tensor, Tensor>;

Normalized batch_norm(const Tensor& input, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                      const OptionalTensor&, bool training, double, double) {
  const auto saved = at::empty({training ? input.size(1) : 0}, input.options());
  return {same(input), saved, saved};
}

Normalized layer_norm(const Tensor& input, IntArrayRef normalized_shape, const OptionalTensor&, const OptionalTensor&,
                      double) {
  const size_t dims = normalized_shape.size();
  TORCH_CHECK(input.sizes().size() >= dims && input.sizes().slice(input.sizes().size() - dims) == normalized_shape,
              "a layer normalization of sizes that do not fit");
  auto sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<int64_t>(dims), sizes.end(), 1);
  const auto saved = at::empty(sizes, input.options());
  return {same(input), saved, saved};
}

Tensor variance(const Tensor& self, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>&, bool keepdim) {
  return real_part(at::meta::sum(self, dim, keepdim, self.scalar_type()));
}

std::tuple<Tensor, Tensor> variance_and_mean(const Tensor& self, at::OptionalIntArrayRef dim,
                                             const std::optional<at::Scalar>&, bool keepdim) {
  const Tensor mean = at::meta::sum(self, dim, keepdim, self.scalar_type());
  return {real_part(mean), mean};
}

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t, int64_t, bool) {
  std::vector<int64_t> sizes{input.size(0), input.size(1)};
  for (int64_t i = 1; i + 1 < grid.dim(); ++i) sizes.push_back(grid.size(i));
  return at::empty(sizes, input.options());
}

std::tuple<Tensor, Tensor> max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                      IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  constexpr size_t dims = 3;
  auto sizes = self.sizes().vec();
  const auto kernels = for_each_dim(kernel_size, dims), pads = for_each_dim(padding, dims),
             strides = stride.empty() ? kernels : for_each_dim(stride, dims), dilations = for_each_dim(dilation, dims);
  for (size_t i = 0; i < dims; ++i) {
    int64_t& size = sizes.at(sizes.size() - dims + i);
    size = at::native::pooling_output_shape(size, kernels[i], pads[i], strides[i], dilations[i], ceil_mode);
  }
  return {at::empty(sizes, self.options()), at::empty(sizes, self.options().dtype(at::kLong))};
}

// Gives what a layer computes at each step, in both directions: ATen's layers are loops over the steps.
Tensor steps(const Tensor& input, const Tensor& hidden, bool bidirectional) {
  TORCH_CHECK(input.dim() == 3 && hidden.dim() == 3, "a recurrent layer of sizes that do not fit");
  return at::empty({input.size(0), input.size(1), hidden.size(2) * (bidirectional ? 2 : 1)}, input.options());
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx, at::TensorList, bool, int64_t, double,
                                        bool, bool bidirectional, bool) {
  TORCH_CHECK(hx.size() == 2, "an LSTM has two states");
  return {steps(input, hx[0], bidirectional), same(hx[0]), same(hx[1])};
}

std::tuple<Tensor, Tensor> recurrent_layer(const Tensor& input, const Tensor& hx, at::TensorList, bool, int64_t, double,
                                           bool, bool bidirectional, bool) {
  return {steps(input, hx, bidirectional), same(hx)};
}

// Finds the shapes of an operator of this library's. The sizes of the presents follow from a number that it is given as
// a tensor.
void group_query_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const Tensor query = torch::jit::peek(*stack, 0, count).toTensor(),
               value = torch::jit::peek(*stack, 2, count).toTensor();
  TORCH_CHECK(query.dim() == 4 && value.dim() == 4, "heads of queries and values must have 4 dimensions");
  torch::jit::drop(*stack, count);
  const Tensor y = at::empty({query.size(0), query.size(2), query.size(1) * value.size(3)}, query.options());
  torch::jit::push(*stack, y, Tensor(), Tensor());
}

// --- All of them ---

template <typename Signature, Signature* function>
KernelFunction overload() {
  return KernelFunction::makeFromUnboxedFunction(c10::CompileTimeFunctionPointer<Signature, function>());
}

template <auto function>
KernelFunction kernel() {
  return overload<std::remove_pointer_t<decltype(function)>, function>();
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, toString(op.operator_name()), " has a shape that follows from its values");
}

// Stands for operators in place: the first argument comes back as it was.
void keep(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size() - 1);
}

using OfBoth = Tensor(const Tensor&, const Tensor&);
using OfScalar = Tensor(const Tensor&, const at::Scalar&);

const std::unordered_map<c10::OperatorName, KernelFunction>& kernels() {
  static const KernelFunction in_place = KernelFunction::makeFromBoxedFunction<&keep>();
  static const std::unordered_map<c10::OperatorName, KernelFunction> all = {
      {{"aten::relu", ""}, kernel<same>()},
      {{"aten::hardswish", ""}, kernel<same>()},
      {{"aten::flip", ""}, kernel<same_with_list>()},
      {{"aten::roll", ""}, kernel<same_with_lists>()},
      {{"aten::nan_to_num", ""}, kernel<same_with_numbers>()},
      {{"aten::abs", ""}, kernel<real_part>()},
      {{"aten::signbit", ""}, kernel<truth>()},
      {{"aten::isneginf", ""}, kernel<truth>()},
      {{"aten::isposinf", ""}, kernel<truth>()},
      {{"aten::isnan", ""}, kernel<truth>()},
      {{"aten::isinf", ""}, kernel<truth>()},
      {{"aten::logical_not", ""}, kernel<truth>()},
      {{"aten::logical_and", ""}, kernel<truth_of_both>()},
      {{"aten::logical_or", ""}, kernel<truth_of_both>()},
      {{"aten::logical_xor", ""}, kernel<truth_of_both>()},
      {{"aten::where", "self"}, kernel<where>()},
      {{"aten::where", "self_out"}, kernel<into<where, const Tensor&, const Tensor&, const Tensor&>>()},
      {{"aten::logical_not", "out"}, kernel<into<truth, const Tensor&>>()},
      {{"aten::logical_and", "out"}, kernel<into<truth_of_both, const Tensor&, const Tensor&>>()},
      {{"aten::dot", ""}, kernel<dot>()},
      {{"aten::index_select", ""}, kernel<index_select>()},
      {{"aten::embedding", ""}, kernel<embedding>()},
      {{"aten::convolution", ""}, kernel<convolution>()},
      {{"aten::native_batch_norm", ""}, kernel<batch_norm>()},
      {{"aten::native_layer_norm", ""}, kernel<layer_norm>()},
      {{"aten::var", "correction"}, kernel<variance>()},
      {{"aten::std", "correction"}, kernel<variance>()},

      {{"aten::var_mean", "correction"}, kernel<variance_and_mean>()},
      {{"aten::max", ""}, kernel<one_element>()},
      {{"aten::min", ""}, kernel<one_element>()},
      {{"aten::grid_sampler_2d", ""}, kernel<grid_sampler>()},
      {{"aten::grid_sampler_3d", ""}, kernel<grid_sampler>()},
      {{"aten::max_pool3d_with_indices", ""}, kernel<max_pool3d>()},
      {{"aten::lstm", "input"}, kernel<lstm>()},
      {{"aten::gru", "input"}, kernel<recurrent_layer>()},
      {{"aten::rnn_tanh", "input"}, kernel<recurrent_layer>()},
      {{"aten::rnn_relu", "input"}, kernel<recurrent_layer>()},

      {{"aten::add", "Tensor"}, kernel<at::meta::add>()},
      {{"aten::sub", "Tensor"}, kernel<at::meta::sub>()},
      {{"aten::mul", "Tensor"}, kernel<at::meta::mul>()},
      {{"aten::div", "Tensor"}, overload<OfBoth, at::meta::div>()},
      {{"aten::div", "Tensor_mode"},
       overload<Tensor(const Tensor&, const Tensor&, std::optional<std::string_view>), at::meta::div>()},
      {{"aten::remainder", "Tensor"}, kernel<at::meta::remainder>()},
      {{"aten::fmod", "Tensor"}, kernel<at::meta::fmod>()},
      {{"aten::pow", "Tensor_Tensor"}, overload<OfBoth, at::meta::pow>()},
      {{"aten::pow", "Tensor_Scalar"}, overload<OfScalar, at::meta::pow>()},
      {{"aten::pow", "Scalar"}, overload<Tensor(const at::Scalar&, const Tensor&), at::meta::pow>()},
      {{"aten::maximum", ""}, kernel<at::meta::maximum>()},
      {{"aten::minimum", ""}, kernel<at::meta::minimum>()},
      {{"aten::bitwise_and", "Tensor"}, kernel<at::meta::bitwise_and>()},
      {{"aten::bitwise_or", "Tensor"}, kernel<at::meta::bitwise_or>()},
      {{"aten::bitwise_xor", "Tensor"}, kernel<at::meta::bitwise_xor>()},
      {{"aten::bitwise_not", ""}, kernel<at::meta::bitwise_not>()},
      {{"aten::bitwise_left_shift", "Tensor"}, kernel<at::meta::bitwise_left_shift>()},
      {{"aten::bitwise_right_shift", "Tensor"}, kernel<at::meta::bitwise_right_shift>()},
      {{"aten::copysign", "Tensor"}, kernel<at::meta::copysign>()},
      {{"aten::eq", "Tensor"}, overload<OfBoth, at::meta::eq>()},
      {{"aten::ne", "Tensor"}, overload<OfBoth, at::meta::ne>()},
      {{"aten::lt", "Tensor"}, overload<OfBoth, at::meta::lt>()},
      {{"aten::le", "Tensor"}, overload<OfBoth, at::meta::le>()},
      {{"aten::gt", "Tensor"}, overload<OfBoth, at::meta::gt>()},
      {{"aten::ge", "Tensor"}, overload<OfBoth, at::meta::ge>()},
      {{"aten::eq", "Scalar"}, overload<OfScalar, at::meta::eq>()},
      {{"aten::ne", "Scalar"}, overload<OfScalar, at::meta::ne>()},
      {{"aten::lt", "Scalar"}, overload<OfScalar, at::meta::lt>()},
      {{"aten::le", "Scalar"}, overload<OfScalar, at::meta::le>()},
      {{"aten::gt", "Scalar"}, overload<OfScalar, at::meta::gt>()},
      {{"aten::ge", "Scalar"}, overload<OfScalar, at::meta::ge>()},

      {{"aten::neg", ""}, kernel<at::meta::neg>()},
      {{"aten::sign", ""}, kernel<at::meta::sign>()},
      {{"aten::floor", ""}, kernel<at::meta::floor>()},
      {{"aten::ceil", ""}, kernel<at::meta::ceil>()},
      {{"aten::round", ""}, overload<Tensor(const Tensor&), at::meta::round>()},
      {{"aten::trunc", ""}, kernel<at::meta::trunc>()},
      {{"aten::reciprocal", ""}, kernel<at::meta::reciprocal>()},
      {{"aten::sqrt", ""}, kernel<at::meta::sqrt>()},
      {{"aten::rsqrt", ""}, kernel<at::meta::rsqrt>()},
      {{"aten::exp", ""}, kernel<at::meta::exp>()},
      {{"aten::expm1", ""}, kernel<at::meta::expm1>()},
      {{"aten::log", ""}, kernel<at::meta::log>()},
      {{"aten::log1p", ""}, kernel<at::meta::log1p>()},
      {{"aten::erf", ""}, kernel<at::meta::erf>()},
      {{"aten::sin", ""}, kernel<at::meta::sin>()},
      {{"aten::cos", ""}, kernel<at::meta::cos>()},
      {{"aten::tan", ""}, kernel<at::meta::tan>()},
      {{"aten::asin", ""}, kernel<at::meta::asin>()},
      {{"aten::acos", ""}, kernel<at::meta::acos>()},
      {{"aten::atan", ""}, kernel<at::meta::atan>()},
      {{"aten::sinh", ""}, kernel<at::meta::sinh>()},
      {{"aten::cosh", ""}, kernel<at::meta::cosh>()},
      {{"aten::tanh", ""}, kernel<at::meta::tanh>()},
      {{"aten::asinh", ""}, kernel<at::meta::asinh>()},
      {{"aten::acosh", ""}, kernel<at::meta::acosh>()},
      {{"aten::atanh", ""}, kernel<at::meta::atanh>()},
      {{"aten::sigmoid", ""}, kernel<at::meta::sigmoid>()},
      {{"aten::hardsigmoid", ""}, kernel<at::meta::hardsigmoid>()},
      {{"aten::leaky_relu", ""}, kernel<at::meta::leaky_relu>()},
      {{"aten::elu", ""}, kernel<at::meta::elu>()},
      {{"aten::gelu", ""}, kernel<at::meta::gelu>()},
      {{"aten::silu", ""}, kernel<at::meta::silu>()},
      {{"aten::mish", ""}, kernel<at::meta::mish>()},
      {{"aten::softplus", ""}, kernel<at::meta::softplus>()},
      {{"aten::softshrink", ""}, kernel<at::meta::softshrink>()},
      {{"aten::hardshrink", ""}, kernel<at::meta::hardshrink>()},
      {{"aten::threshold", ""}, kernel<at::meta::threshold>()},
      {{"aten::clamp", ""},
       overload<Tensor(const Tensor&, const std::optional<at::Scalar>&, const std::optional<at::Scalar>&),
                at::meta::clamp>()},
      {{"aten::clamp", "Tensor"},
       overload<Tensor(const Tensor&, const OptionalTensor&, const OptionalTensor&), at::meta::clamp>()},
      {{"aten::clamp_min", ""}, overload<OfScalar, at::meta::clamp_min>()},
      {{"aten::clamp_min", "Tensor"}, overload<OfBoth, at::meta::clamp_min>()},
      {{"aten::clamp_max", ""}, overload<OfScalar, at::meta::clamp_max>()},
      {{"aten::clamp_max", "Tensor"}, overload<OfBoth, at::meta::clamp_max>()},
      {{"aten::_softmax", ""}, kernel<at::meta::_softmax>()},
      {{"aten::_log_softmax", ""}, kernel<at::meta::_log_softmax>()},

      {{"aten::mm", ""}, kernel<at::meta::mm>()},
      {{"aten::bmm", ""}, kernel<at::meta::bmm>()},
      {{"aten::addmm", ""}, kernel<at::meta::addmm>()},
      {{"aten::addmv", ""}, kernel<at::meta::addmv>()},
      {{"aten::baddbmm", ""}, kernel<at::meta::baddbmm>()},

      {{"aten::sum", "dim_IntList"}, kernel<at::meta::sum>()},
      {{"aten::mean", "dim"}, kernel<at::meta::mean>()},
      {{"aten::prod", "dim_int"}, kernel<at::meta::prod>()},
      {{"aten::amax", ""}, kernel<at::meta::amax>()},
      {{"aten::amin", ""}, kernel<at::meta::amin>()},
      {{"aten::max", "dim"}, kernel<at::meta::max>()},
      {{"aten::min", "dim"}, kernel<at::meta::min>()},
      {{"aten::argmax", ""}, kernel<at::meta::argmax>()},
      {{"aten::argmin", ""}, kernel<at::meta::argmin>()},
      {{"aten::all", ""}, overload<Tensor(const Tensor&), at::meta::all>()},
      {{"aten::any", ""}, overload<Tensor(const Tensor&), at::meta::any>()},
      {{"aten::all", "dim"}, overload<Tensor(const Tensor&, int64_t, bool), at::meta::all>()},
      {{"aten::any", "dim"}, overload<Tensor(const Tensor&, int64_t, bool), at::meta::any>()},
      {{"aten::cumsum", ""}, kernel<at::meta::cumsum>()},
      {{"aten::cumprod", ""}, kernel<at::meta::cumprod>()},
      {{"aten::linalg_vector_norm", ""}, kernel<at::meta::linalg_vector_norm>()},

      {{"aten::cat", ""}, kernel<at::meta::cat>()},
      {{"aten::gather", ""}, kernel<at::meta::gather>()},
      {{"aten::scatter", "src"},
       overload<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&), at::meta::scatter>()},
      {{"aten::scatter", "value"},
       overload<Tensor(const Tensor&, int64_t, const Tensor&, const at::Scalar&), at::meta::scatter>()},
      {{"aten::scatter_reduce", "two"}, kernel<at::meta::scatter_reduce>()},
      {{"aten::index", "Tensor"}, kernel<at::meta::index>()},
      {{"aten::sort", "stable"}, kernel<at::meta::sort>()},
      {{"aten::topk", ""}, kernel<at::meta::topk>()},
      {{"aten::tril", ""}, kernel<at::meta::tril>()},
      {{"aten::triu", ""}, kernel<at::meta::triu>()},
      {{"aten::arange", "start_out"}, kernel<at::meta::arange_outf>()},
      {{"aten::max_pool2d_with_indices", ""}, kernel<at::meta::max_pool2d_with_indices>()},
      {{"aten::avg_pool2d", ""}, kernel<at::meta::avg_pool2d>()},
      {{"aten::avg_pool3d", ""}, kernel<at::meta::avg_pool3d>()},
      {{"aten::reflection_pad1d", ""}, kernel<at::meta::reflection_pad1d>()},
      {{"aten::replication_pad1d", ""}, kernel<at::meta::replication_pad1d>()},
      {{"aten::replication_pad2d", ""}, kernel<at::meta::replication_pad2d>()},
      {{"aten::upsample_nearest2d", ""}, kernel<at::meta::upsample_nearest2d>()},
      {{"aten::upsample_bilinear2d", ""}, kernel<at::meta::upsample_bilinear2d>()},
      {{"aten::nll_loss_forward", ""}, kernel<at::meta::nll_loss_forward>()},

      {{"aten::add_", "Tensor"}, in_place},
      {{"aten::mul_", "Tensor"}, in_place},
      {{"aten::addmv_", ""}, in_place},
      {{"aten::sigmoid_", ""}, in_place},
      {{"aten::tanh_", ""}, in_place},
      {{"aten::fill_", "Scalar"}, in_place},
      {{"aten::masked_fill_", "Scalar"}, in_place},
      {{"aten::zero_", ""}, in_place},
      {{"aten::uniform_", ""}, in_place},

      {{"onnx_torch::plain_group_query_attention", ""},
       KernelFunction::makeFromBoxedFunction<&group_query_attention>()},
      {{"aten::nonzero", ""}, KernelFunction::makeFromBoxedFunction<&refuse>()},
      {{"aten::_local_scalar_dense", ""}, KernelFunction::makeFromBoxedFunction<&refuse>()},
  };
  return all;
}

bool is_meta(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().is_meta();
  if (value.isDevice()) return value.toDevice().is_meta();
  return value.isList() && std::ranges::any_of(value.toListRef(), is_meta);
}

void call(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const DispatchKeySet later = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::DeferredInit);
  if (std::ranges::any_of(torch::jit::last(*stack, op.schema().arguments().size()), is_meta)) {
    if (const auto found = kernels().find(op.operator_name()); found != kernels().end()) {
      found->second.callBoxed(op, later, stack);
      return;
    }
    // The others are made of other operators: of ATen's, where torch has written the whole in Python.
    for (const auto composite :
         {DispatchKey::CompositeExplicitAutogradNonFunctional, DispatchKey::CompositeExplicitAutograd}) {
      if (!op.hasKernelForDispatchKey(composite)) continue;
      op.callBoxedForDispatchKey(composite, *stack);
      return;
    }
  }
  op.redispatchBoxed(later, stack);
}

// torch leaves this key to libraries that defer work, of which there is none today.
TORCH_LIBRARY_IMPL(_, DeferredInit, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&call>()); }

}  // namespace
}  // namespace onnxtorch
