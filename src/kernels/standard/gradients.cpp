// Gradients of the floating-point operators. That of an operator `name` is the gradient of `name_formula`
// (formulas.cpp), which is computed where a gradient is asked for and not before. Where nobody has written a formula,
// asking is an error, instead of a gradient that is missing.
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace onnxtorch {
namespace {

using c10::IValue;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

// An operator's call: its arguments lie on the stack, and their tensors are `tensors`, in order.
struct Call {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet keys;
  Stack& stack;

  Stack arguments() const { return {stack.end() - std::ssize(op.schema().arguments()), stack.end()}; }
};

class FormulaGradient : public torch::autograd::Function<FormulaGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList tensors, const Call& call) {
    Stack others = call.arguments();
    std::vector<int64_t> positions;
    for (IValue& argument : others) {
      if (!argument.isTensor()) continue;
      positions.push_back(&argument - others.data());
      argument = IValue();
    }
    context->save_for_backward(tensors.vec());
    context->saved_data["positions"] = positions;
    context->saved_data["others"] = c10::ivalue::Tuple::create(std::move(others));
    context->saved_data["formula"] = call.op.schema().name() + "_formula";

    const at::AutoDispatchBelowADInplaceOrView kernel;
    call.op.redispatchBoxed(call.keys & c10::after_autograd_keyset, &call.stack);
    return torch::jit::pop(call.stack).toTensor();
  }

  // Gives one gradient for each tensor, and one for the call.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list tensors = context->get_saved_variables();
    const std::vector<int64_t> positions = context->saved_data["positions"].toIntVector();
    Stack stack = context->saved_data["others"].toTupleRef().elements().vec();
    variable_list wanted;
    for (size_t i = 0; i < tensors.size(); ++i) {
      stack[positions[i]] = tensors[i];
      if (context->needs_input_grad(i)) wanted.push_back(tensors[i]);
    }
    const bool differentiable = at::GradMode::is_enabled();
    const at::AutoGradMode record(true);
    c10::Dispatcher::singleton()
        .findSchemaOrThrow(context->saved_data["formula"].toStringRef().c_str(), "")
        .callBoxed(stack);

    const at::Tensor value = stack.back().toTensor();
    variable_list found(wanted.size());
    if (value.requires_grad()) {  // it may depend on nothing, where it has no elements
      found = torch::autograd::grad({value}, wanted, gradients, /*retain_graph=*/differentiable, differentiable,
                                    /*allow_unused=*/true);
    }
    variable_list result(tensors.size() + 1);
    for (size_t i = 0, k = 0; i < tensors.size(); ++i) {
      if (!context->needs_input_grad(i)) continue;
      result[i] = found[k].defined() ? found[k] : at::zeros_like(tensors[i]);
      ++k;
    }
    return result;
  }
};

void call_with_gradient(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Call call{op, keys, *stack};
  variable_list tensors;
  for (const IValue& argument : call.arguments()) {
    if (argument.isTensor()) tensors.push_back(argument.toTensor());
  }
  torch::jit::push(*stack, FormulaGradient::apply(at::TensorList(tensors), call));
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, Autograd, m) {
  for (const char* name : {"cast_small_float", "deform_conv", "max_roi_pool", "roi_align"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_with_gradient>());
  }
  for (const char* name : {"linear_of_bits", "multiclass_probability", "tree_ensemble"}) {
    m.impl(name, torch::autograd::autogradNotImplementedFallback());
  }
}

}  // namespace onnxtorch
