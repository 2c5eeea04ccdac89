#include "kernels/cpu/chain/chain.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <limits>
#include <string>

#include "base/list_of_tensors.h"
#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/chain/device_pass.h"
#include "kernels/cpu/chain/plan.h"
#include "kernels/cpu/cpu_features.h"

namespace onnxtorch {
namespace {

at::Tensor reduce(const at::Tensor& x, const ChainPlan::Rest& rest) {
  at::Tensor reduced = [&] {
    switch (rest.reducer) {
      case chain::Reducer::Sum:
        return at::sum(x, rest.dims, rest.keepdim);
      case chain::Reducer::Maximum:
        return at::amax(x, rest.dims, rest.keepdim);
      case chain::Reducer::Minimum:
        return at::amin(x, rest.dims, rest.keepdim);
    }
    return at::Tensor();
  }();
  if (rest.has_parts && rest.keepdim) reduced = reduced.squeeze(-1);
  reduced = reduced.to(c10::kFloat);
  if (rest.divisor != 1) reduced.div_(rest.divisor);
  return reduced;
}

void run_elsewhere(const ChainPlan::Pass& pass, std::vector<at::Tensor>& tensors) {
  static const auto computed =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("onnx_torch::element_wise", "")
          .typed<std::vector<at::Tensor>(at::TensorList, const c10::intrusive_ptr<ElementWisePass>&)>();
  std::vector<at::Tensor> sources;
  for (const size_t number : pass.sources) sources.push_back(tensors[number]);
  for (at::Tensor& result : computed.call(sources, pass.elsewhere)) tensors.push_back(std::move(result));
}

// Adds what the pass gives to the tensors.
void run_pass(const ChainPlan::Pass& pass, std::vector<at::Tensor>& tensors) {
  if (pass.elsewhere) return run_elsewhere(pass, tensors);
  c10::SmallVector<const void*, 16> sources;
  c10::SmallVector<void*, 8> results;
  for (const size_t number : pass.sources) sources.push_back(tensors[number].const_data_ptr());
  for (size_t i = 0; i < pass.results.size(); ++i) {
    const bool over = pass.over[i] && is_last_reference(tensors[*pass.over[i]]);
    const auto type = scalar_type(pass.loop.result_types[i]);
    tensors.push_back(over ? std::move(tensors[*pass.over[i]])
                           : work_tensor(pass.layout.sizes, pass.layout.strides, type));
    note_bound(tensors.back(), std::numeric_limits<float>::infinity());
    results.push_back(tensors.back().mutable_data_ptr());
  }
  for (const ChainPlan::Layout& layout : pass.reduced) {
    const auto type = pass.loop.gives_doubles ? c10::kDouble : c10::kFloat;
    tensors.push_back(work_tensor(layout.sizes, layout.strides, type));
    results.push_back(tensors.back().mutable_data_ptr());
  }
  parallel_for(pass.items, pass.cost, [&](int64_t begin, int64_t end) {
    for_this_cpu<chain::Kernels>().run(pass.loop, sources.data(), results.data(), begin, end);
  });
  for (const ChainPlan::Rest& rest : pass.rests) tensors.push_back(reduce(tensors[rest.tensor], rest));
}

// None where a pass is too large for the device.
std::optional<ChainPlan> plan_for(c10::Device device, const ChainProgram& program, at::TensorList inputs) {
  auto plan = plan_chain(program, inputs);
  if (!plan || device.is_cpu()) return plan;
  for (ChainPlan::Pass& pass : plan->passes) {
    pass.elsewhere = device_pass(pass);
    if (!pass.elsewhere) return {};
  }
  return plan;
}

}  // namespace

Chain::Chain(ChainProgram program, const std::shared_ptr<torch::jit::Graph>& plain)
    : program_(std::move(program)), plain_(plain, "chain") {}

bool Chain::fits(at::TensorList inputs) const {
  if (inputs.empty() || inputs.size() != program_.input_types.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (!input.defined() || input.device() != inputs[0].device() || input.layout() != c10::kStrided ||
        input.numel() == 0 || input.scalar_type() != scalar_type(program_.input_types[i])) {
      return false;
    }
  }
  return true;
}

std::shared_ptr<const ChainPlan> Chain::plan(at::TensorList inputs) const {
  ShapeKey key;
  key.add(static_cast<int64_t>(inputs[0].device().type()));
  for (const at::Tensor& input : inputs) key.add_layout(input);
  return plans_.get(key, [&] { return plan_for(inputs[0].device(), program_, inputs).value_or(ChainPlan()); });
}

std::vector<at::Tensor> Chain::by_aten(at::TensorList inputs) const {
  torch::jit::Stack stack(inputs.begin(), inputs.end());
  torch::jit::InterpreterState(plain_).run(stack);
  std::vector<at::Tensor> results;
  for (c10::IValue& value : stack) results.push_back(std::move(value).toTensor());
  return results;
}

std::vector<at::Tensor> Chain::run(std::vector<at::Tensor> tensors) const {
  if (!fits(tensors)) return by_aten(tensors);
  const auto made = plan(tensors);
  if (made->passes.empty()) return by_aten(tensors);
  tensors.reserve(made->tensors);
  for (const ChainPlan::Pass& pass : made->passes) run_pass(pass, tensors);
  std::vector<at::Tensor> results;
  results.reserve(made->results.size());
  for (const size_t number : made->results) results.push_back(tensors[number]);
  return results;
}

namespace {

// Boxed, as TorchScript copies a list for a function that takes one, and each tensor has a reference more then.
void run_chain(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto operation = torch::jit::pop(*stack).toCustomClass<Chain>();
  torch::jit::push(*stack, operation->run(taken(torch::jit::pop(*stack))));
}

}  // namespace

void register_chain() {
  static const torch::Library library = registered([](torch::Library& m) {
    const torch::class_<Chain> chain("onnx_torch", "Chain");
    m.def("chain(Tensor[] inputs, __torch__.torch.classes.onnx_torch.Chain operation) -> Tensor[]",
          torch::CppFunction::makeFromBoxedFunction<run_chain>());
  });
}

}  // namespace onnxtorch
