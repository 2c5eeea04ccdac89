#include "lower/chain/chain.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>

#include "kernels/work_memory.h"
#include "lower/memory_order.h"
#include "lower/taken.h"

namespace onnxtorch {

using chain::Loop;
using chain::Op;
using chain::Source;
using Ints = std::vector<int64_t>;

struct Layout {
  Ints sizes, strides;
};

// Instructions whose results are of one shape are computed in one pass; the smaller shapes' come first.
struct ChainPlan {
  struct Pass {
    Loop loop;
    std::vector<size_t> sources, results;     // numbers of tensors: the inputs, then what the passes give
    std::vector<std::optional<size_t>> over;  // the tensor whose memory a result may take, where nothing else reads it
    Layout layout;                            // of the results
    int64_t elements = 0, grain = 0;
  };

  std::vector<Pass> passes;
  std::vector<size_t> results;  // numbers of tensors
  size_t tensors = 0;
};

namespace {

bool gives_mask(Op op) { return op >= Op::Eq && op <= Op::LogicalXor; }

// How much work an operator is, next to an addition.
int64_t weight(Op op) {
  switch (op) {
    case Op::Exp:
    case Op::Expm1:
    case Op::Log:
    case Op::Log1p:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::Sin:
    case Op::Cos:
    case Op::Tan:
    case Op::Asin:
    case Op::Acos:
    case Op::Atan:
    case Op::Silu:
    case Op::Gelu:
    case Op::GeluTanh:
    case Op::Pow:
      return 8;
    default:
      return 1;
  }
}

chain::Run* kernel() {
#ifdef __x86_64__
  static chain::Run* const chosen = [] {
    const std::string capability = at::get_cpu_capability();
    return capability == "AVX512" ? chain::AVX512::run : capability == "AVX2" ? chain::AVX2::run : chain::DEFAULT::run;
  }();
  return chosen;
#else
  return chain::DEFAULT::run;
#endif
}

// Whether the strides are those, wherever they matter.
bool same_strides(const Ints& sizes, const Ints& a, const Ints& b) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  }
  return true;
}

int64_t count(const Ints& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies()); }

// How a pass over `sizes`, with the dimensions in this order, reads a tensor.
Source source(const Layout& tensor, const Ints& sizes, const Ints& order, bool is_mask) {
  if (count(tensor.sizes) == 1) return {Source::Kind::Splat, is_mask, {}, {}};
  Source result{Source::Kind::Strided, is_mask, {}, {}};
  const auto added = static_cast<int64_t>(sizes.size() - tensor.sizes.size());
  for (const int64_t dim : order) {
    if (sizes[dim] == 1) continue;
    const int64_t own = dim - added;
    const int64_t stride = own < 0 || tensor.sizes[own] == 1 ? 0 : tensor.strides[own];
    if (!result.sizes.empty() && result.strides.back() == stride * sizes[dim]) {
      result.sizes.back() *= sizes[dim];
      result.strides.back() = stride;
    } else {
      result.sizes.push_back(sizes[dim]);
      result.strides.push_back(stride);
    }
  }
  if (result.sizes.size() == 1 && result.strides[0] == 1) result.kind = Source::Kind::Direct;
  return result;
}

// Makes the passes for inputs of known layouts.
class Planner {
 public:
  Planner(const ChainProgram& program, at::TensorList inputs) : program_(program) {
    for (const at::Tensor& input : inputs) layouts_.push_back({input.sizes().vec(), input.strides().vec()});
    for (size_t i = 0; i < inputs.size(); ++i) tensor_of_[i] = i;
  }

  // None where the sizes do not fit, or the passes are too large.
  std::optional<ChainPlan> plan() {
    if (!find_sizes()) return {};
    // A value's operands are of fewer elements, or dimensions, or of its own size.
    std::map<std::pair<int64_t, size_t>, std::map<Ints, std::vector<size_t>>> instructions;
    for (size_t i = program_.first_instruction(); i < sizes_.size(); ++i)
      instructions[{count(sizes_[i]), sizes_[i].size()}][sizes_[i]].push_back(i);
    leaves_pass_.insert(program_.results.begin(), program_.results.end());
    for (size_t i = program_.first_instruction(); i < sizes_.size(); ++i) {
      for (const size_t operand : instruction(i).operands) {
        if (sizes_[operand] != sizes_[i]) leaves_pass_.insert(operand);
      }
    }
    for (const auto& [key, groups] : instructions) {
      for (const auto& [sizes, values] : groups) {
        if (!add_pass(sizes, values)) return {};
      }
    }
    for (const size_t value : program_.results) plan_.results.push_back(tensor_of_.at(value));
    for (ChainPlan::Pass& pass : plan_.passes) share_memory(pass);
    plan_.tensors = layouts_.size();
    return std::move(plan_);
  }

 private:
  const ChainProgram::Instruction& instruction(size_t value) const {
    return program_.instructions[value - program_.first_instruction()];
  }
  bool is_constant(size_t value) const {
    return value >= program_.inputs_are_masks.size() && value < program_.first_instruction();
  }
  bool is_mask(size_t value) const {
    if (value < program_.inputs_are_masks.size()) return program_.inputs_are_masks[value];
    return !is_constant(value) && gives_mask(instruction(value).op);
  }

  bool find_sizes() {
    for (const Layout& layout : layouts_) sizes_.push_back(layout.sizes);
    sizes_.resize(program_.first_instruction());
    for (const auto& step : program_.instructions) {
      Ints sizes;
      for (const size_t operand : step.operands) {
        const Ints& other = sizes_[operand];
        if (sizes == other) continue;
        for (size_t i = 1; i <= std::min(sizes.size(), other.size()); ++i) {
          const int64_t a = sizes[sizes.size() - i], b = other[other.size() - i];
          if (a != b && a != 1 && b != 1) return false;
        }
        sizes = at::infer_size(sizes, other);
      }
      sizes_.push_back(std::move(sizes));
    }
    return true;
  }

  // The order of dimensions in which a pass goes through memory: that of the first tensor of its size.
  Ints order(const Ints& sizes, const std::vector<size_t>& tensors) const {
    for (const size_t tensor : tensors) {
      const Layout& layout = layouts_[tensor];
      if (layout.sizes != sizes) continue;
      const Ints found = order_of(layout.strides);
      if (same_strides(sizes, layout.strides, strides_of(sizes, found))) return found;
    }
    Ints plain(sizes.size());
    std::iota(plain.begin(), plain.end(), 0);
    return plain;
  }

  bool add_pass(const Ints& sizes, const std::vector<size_t>& values) {
    const auto here = [&](size_t value) { return value >= program_.first_instruction() && sizes_[value] == sizes; };
    ChainPlan::Pass pass;
    std::vector<size_t> from, constants;
    std::map<size_t, size_t> last_use;
    int64_t work = 0;
    const auto note = [](std::vector<size_t>& list, size_t value) {
      if (std::ranges::find(list, value) == list.end()) list.push_back(value);
    };
    for (const size_t value : values) {
      work += weight(instruction(value).op);
      for (const size_t operand : instruction(value).operands) {
        if (!here(operand)) note(is_constant(operand) ? constants : from, operand);
        last_use[operand] = value;
      }
    }
    for (const size_t value : from) pass.sources.push_back(tensor_of_.at(value));
    const Ints dims = order(sizes, pass.sources);
    for (const size_t value : from)
      pass.loop.sources.push_back(source(layouts_[tensor_of_.at(value)], sizes, dims, is_mask(value)));
    for (const size_t value : constants)
      pass.loop.constants.push_back(program_.constants[value - program_.inputs_are_masks.size()]);

    pass.layout = {sizes, strides_of(sizes, dims)};
    pass.elements = count(sizes);
    constexpr int64_t kGrain = 1 << 15;  // of ATen's operators
    pass.grain = std::max<int64_t>(kGrain / work, 1 << 10);
    std::vector<size_t> results;
    for (const size_t value : values) {
      if (leaves_pass_.contains(value)) results.push_back(value);
    }
    for (const size_t value : results) {
      pass.loop.results_are_masks.push_back(is_mask(value));
      pass.results.push_back(layouts_.size());
      tensor_of_[value] = layouts_.size();
      layouts_.push_back(pass.layout);
    }

    // Registers are taken again as soon as their values are not needed any more.
    std::map<size_t, size_t> slots;
    for (const auto* list : {&from, &constants}) {
      for (const size_t value : *list) slots.emplace(value, slots.size());
    }
    const size_t first_register = slots.size();
    std::map<size_t, size_t> registers;
    std::vector<size_t> free;
    for (const size_t value : values) {
      const auto& operands = instruction(value).operands;
      for (const size_t operand : operands) {
        const auto held = registers.find(operand);
        if (held == registers.end() || last_use.at(operand) != value) continue;
        free.push_back(held->second);
        registers.erase(held);
      }
      if (std::ranges::find(results, value) != results.end()) continue;
      if (free.empty()) free.push_back(first_register + pass.loop.registers++);
      slots[value] = registers[value] = free.back();
      free.pop_back();
    }
    for (size_t i = 0; i < results.size(); ++i) slots[results[i]] = first_register + pass.loop.registers + i;
    for (const size_t value : values) {
      const auto& step = instruction(value);
      chain::Step& made = pass.loop.steps.emplace_back(
          chain::Step{step.op, static_cast<uint16_t>(slots.at(value)), {}, step.a, step.b});
      for (size_t i = 0; i < step.operands.size(); ++i)
        made.operands[i] = static_cast<uint16_t>(slots.at(step.operands[i]));
    }
    const size_t buffers = pass.loop.registers + results.size() + from.size();
    const bool fits = pass.loop.slots() <= chain::kMostSlots && buffers <= chain::kMostBuffers;
    plan_.passes.push_back(std::move(pass));
    return fits;
  }

  // Whether the pass is the last to read a tensor.
  bool is_last_to_read(const ChainPlan::Pass& pass, size_t tensor) const {
    const auto reads = [&](const ChainPlan::Pass& other) { return std::ranges::count(other.sources, tensor) > 0; };
    return std::ranges::find(plan_.results, tensor) == plan_.results.end() &&
           std::ranges::none_of(std::span(&pass + 1, &plan_.passes.back() + 1), reads);
  }

  // A result may take the memory of a source that lies as it does, and that no step reads after the result is written.
  void share_memory(ChainPlan::Pass& pass) {
    const auto& loop = pass.loop;
    const auto last_read = [&](size_t slot) {
      const auto found = std::ranges::find_if(loop.steps | std::views::reverse, [&](const chain::Step& step) {
        return std::ranges::count(step.operands, slot) > 0;
      });
      return loop.steps.rend() - found;
    };
    const size_t first_result = loop.slots() - pass.results.size();
    pass.over.resize(pass.results.size());
    for (size_t i = 0; i < pass.results.size(); ++i) {
      if (loop.results_are_masks[i]) continue;
      const auto written =
          std::ranges::find(loop.steps, first_result + i, &chain::Step::result) - loop.steps.begin() + 1;
      for (size_t slot = 0; slot < pass.sources.size(); ++slot) {
        const size_t tensor = pass.sources[slot];
        const Source& source = loop.sources[slot];
        if (source.kind == Source::Kind::Direct && !source.is_mask && layouts_[tensor].sizes == pass.layout.sizes &&
            last_read(slot) <= written && std::ranges::count(pass.over, tensor) == 0 && is_last_to_read(pass, tensor)) {
          pass.over[i] = tensor;
          break;
        }
      }
    }
  }

  const ChainProgram& program_;
  ChainPlan plan_;
  std::vector<Layout> layouts_;         // of tensors
  std::vector<Ints> sizes_;             // of values
  std::map<size_t, size_t> tensor_of_;  // values that are tensors
  std::set<size_t> leaves_pass_;        // values that are results, or that other passes need
};

}  // namespace

Chain::Chain(ChainProgram program, const std::shared_ptr<torch::jit::Graph>& plain)
    : program_(std::move(program)), plain_(plain, "chain") {}

bool Chain::fits(at::TensorList inputs) const {
  if (inputs.size() != program_.inputs_are_masks.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (!input.defined() || !input.device().is_cpu() || input.layout() != c10::kStrided || input.numel() == 0 ||
        input.scalar_type() != (program_.inputs_are_masks[i] ? c10::kBool : c10::kFloat)) {
      return false;
    }
  }
  return true;
}

std::shared_ptr<const ChainPlan> Chain::plan(at::TensorList inputs) const {
  std::vector<int64_t> key;
  key.reserve(inputs.size() * 8);
  for (const at::Tensor& input : inputs) {
    key.push_back(input.dim());
    key.insert(key.end(), input.sizes().begin(), input.sizes().end());
    key.insert(key.end(), input.strides().begin(), input.strides().end());
  }
  return plans_.get(key, [&] { return Planner(program_, inputs).plan().value_or(ChainPlan()); });
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
  for (const ChainPlan::Pass& pass : made->passes) {
    c10::SmallVector<const void*, 16> sources;
    c10::SmallVector<void*, 8> results;
    for (const size_t number : pass.sources) sources.push_back(tensors[number].const_data_ptr());
    for (size_t i = 0; i < pass.results.size(); ++i) {
      const bool over = pass.over[i] && is_last_reference(tensors[*pass.over[i]]);
      const auto type = pass.loop.results_are_masks[i] ? c10::kBool : c10::kFloat;
      tensors.push_back(over ? std::move(tensors[*pass.over[i]])
                             : work_tensor(pass.layout.sizes, pass.layout.strides, type));
      note_bound(tensors.back(), std::numeric_limits<float>::infinity());
      results.push_back(tensors.back().mutable_data_ptr());
    }
    at::parallel_for(0, pass.elements, pass.grain, [&](int64_t begin, int64_t end) {
      kernel()(pass.loop, sources.data(), results.data(), begin, end);
    });
  }
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
  static const torch::Library library = [] {
    const torch::class_<Chain> chain("onnx_torch", "Chain");
    torch::Library m(torch::Library::FRAGMENT, "onnx_torch", {}, __FILE__, __LINE__);
    m.def("chain(Tensor[] inputs, __torch__.torch.classes.onnx_torch.Chain operation) -> Tensor[]",
          torch::CppFunction::makeFromBoxedFunction<run_chain>());
    return m;
  }();
}

}  // namespace onnxtorch
