#include "kernels/cpu/chain/chain.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <set>
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

void compute(const ChainPlan::Pass& pass, const void* const* sources, void* const* results) {
  parallel_for(pass.items, pass.cost, [&](int64_t begin, int64_t end) {
    for_this_cpu<chain::Kernels>().run(pass.loop, sources, results, begin, end);
  });
}

// Runs a pass, and adds what it gives to the tensors.
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
  compute(pass, sources.data(), results.data());
  for (const ChainPlan::Rest& rest : pass.rests) tensors.push_back(reduce(tensors[rest.tensor], rest));
}

// Plans the passes of a chain on a device. Returns none where one is too large for it.
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

// The passes of a plan, and where the tensors lie that they are given and give.
class PlannedChain : public PlannedCall {
 public:
  // Each tensor is a place, or lies so far from the beginning of the work's memory.
  struct Tensor {
    std::optional<size_t> place;
    size_t offset = 0;
  };

  PlannedChain(std::shared_ptr<const ChainPlan> plan, std::vector<Tensor> tensors, size_t work_bytes)
      : plan_(std::move(plan)), tensors_(std::move(tensors)), work_bytes_(work_bytes) {}

  size_t work_bytes() const override { return work_bytes_; }

  std::vector<Over> over() const override {
    std::vector<Over> found;
    size_t given = plan_->inputs;
    for (const ChainPlan::Pass& pass : plan_->passes) {
      for (size_t i = 0; i < pass.results.size(); ++i) {
        const auto result = tensors_[given + i].place;
        if (result && pass.over[i] && *pass.over[i] < plan_->inputs) {
          found.push_back({.result = *result, .argument = *tensors_[*pass.over[i]].place});
        }
      }
      given += pass.results.size() + pass.reduced.size();
    }
    return found;
  }

  void run(std::span<const TensorPlace> places) const override {
    c10::SmallVector<void*, 24> data;
    for (const Tensor& tensor : tensors_) {
      data.push_back(tensor.place ? places[*tensor.place].data : places.back().data + tensor.offset);
    }
    size_t given = plan_->inputs;
    for (const ChainPlan::Pass& pass : plan_->passes) {
      c10::SmallVector<const void*, 16> sources;
      for (const size_t number : pass.sources) sources.push_back(data[number]);
      compute(pass, sources.data(), data.data() + given);
      given += pass.results.size() + pass.reduced.size();
    }
  }

 private:
  const std::shared_ptr<const ChainPlan> plan_;
  const std::vector<Tensor> tensors_;
  const size_t work_bytes_;
};

}  // namespace

std::unique_ptr<PlannedCall> Chain::planned(at::TensorList inputs) const {
  if (!fits(inputs)) return {};
  const auto made = plan(inputs);
  if (made->passes.empty()) return {};
  std::vector<PlannedChain::Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) tensors.push_back({.place = i});
  size_t work_bytes = 0;
  const auto add = [&](const ChainPlan::Layout& layout, c10::ScalarType type) {
    const auto result = std::ranges::find(made->results, tensors.size());
    if (result != made->results.end()) {
      tensors.push_back({.place = inputs.size() + static_cast<size_t>(result - made->results.begin())});
      return;
    }
    constexpr size_t kAlignment = 64;
    tensors.push_back({.place = {}, .offset = work_bytes});
    const size_t bytes = at::detail::computeStorageNbytes(layout.sizes, layout.strides, c10::elementSize(type));
    work_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (const ChainPlan::Pass& pass : made->passes) {
    if (pass.elsewhere || !pass.rests.empty()) return {};
    for (const chain::Type type : pass.loop.result_types) add(pass.layout, scalar_type(type));
    for (const ChainPlan::Layout& layout : pass.reduced) {
      add(layout, pass.loop.gives_doubles ? c10::kDouble : c10::kFloat);
    }
  }
  const std::set<size_t> results(made->results.begin(), made->results.end());
  if (results.size() < made->results.size() || *results.begin() < inputs.size()) return {};
  return std::make_unique<PlannedChain>(made, std::move(tensors), work_bytes);
}

namespace {

std::unique_ptr<PlannedCall> plan_chain_call(const PlannedOperands& of) {
  const std::vector<at::Tensor> inputs = of.arguments[0].toTensorVector();
  return of.arguments[1].toCustomClass<Chain>()->planned(inputs);
}

// Runs a chain. The function is boxed, as TorchScript copies the list for one that takes a list, and then each tensor
// has one more reference.
void run_chain(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto operation = torch::jit::pop(*stack).toCustomClass<Chain>();
  torch::jit::push(*stack, operation->run(take_tensors(torch::jit::pop(*stack))));
}

}  // namespace

void register_chain() {
  static const torch::Library library = registered([](torch::Library& m) {
    const torch::class_<Chain> chain("onnx_torch", "Chain");
    m.def("chain(Tensor[] inputs, __torch__.torch.classes.onnx_torch.Chain operation) -> Tensor[]",
          torch::CppFunction::makeFromBoxedFunction<run_chain>());
  });
  register_planner("onnx_torch::chain", plan_chain_call);
}

}  // namespace onnxtorch
