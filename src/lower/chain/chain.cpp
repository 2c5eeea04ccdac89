#include "lower/chain/chain.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/library.h>

#include <algorithm>
#include <fstream>
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
  // What ATen reduces of a tensor that a pass gives.
  struct Rest {
    size_t tensor;
    chain::Reducer reducer;
    Ints dims;
    bool keepdim, has_parts;  // parts are the last dimension
    float divisor;
  };

  struct Pass {
    Loop loop;
    std::vector<size_t> sources, results;     // numbers of tensors: the inputs, then what the passes give
    std::vector<std::optional<size_t>> over;  // the tensor whose memory a result may take, where nothing else reads it
    Layout layout;                            // of the results
    int64_t items = 0, grain = 0;             // elements, or strips of parts of what is reduced
    std::vector<Layout> reduced;  // what the loop gives besides: tensors whose numbers come after the results'
    std::vector<Rest> rests;      // whose results' numbers come next
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

Layout without(const Layout& layout, const Ints& dims) {
  Layout result;
  for (int64_t dim = 0; dim < static_cast<int64_t>(layout.sizes.size()); ++dim) {
    if (std::ranges::binary_search(dims, dim)) continue;
    result.sizes.push_back(layout.sizes[dim]);
    result.strides.push_back(layout.strides[dim]);
  }
  return result;
}

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

// In bytes, as Linux tells; unlimited where it does not.
size_t last_cache() {
  static const size_t bytes = [] {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
    size_t kibibytes = 0;
    return file >> kibibytes ? kibibytes << 10 : std::numeric_limits<size_t>::max();
  }();
  return bytes;
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
    if (!find_sizes() || !find_reductions()) return {};
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
    for (const auto& [sizes, reductions] : after_pass_) {
      for (const size_t number : reductions) leaves_pass_.insert(program_.reductions[number].value);
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

  // Those of one shape and of the same dimensions are computed in the pass, the others after it. False where ATen has
  // an error.
  bool find_reductions() {
    for (size_t i = 0; i < program_.reductions.size(); ++i) {
      const auto& reduction = program_.reductions[i];
      const Ints& sizes = sizes_[reduction.value];
      const auto rank = static_cast<int64_t>(sizes.size());
      std::set<int64_t> dims;
      for (const int64_t dim : reduction.dims) {
        const int64_t limit = std::max<int64_t>(rank, 1);
        if (dim < -limit || dim >= limit || !dims.insert(dim < 0 ? dim + limit : dim).second) return false;
      }
      for (int64_t dim = 0; dim < rank && reduction.dims.empty(); ++dim) dims.insert(dim);
      dims_.emplace_back(dims.begin(), dims.end());
      auto& taken = in_pass_[sizes];
      const bool fits = taken.size() < chain::kMostReductions && (taken.empty() || dims_[taken[0]] == dims_[i]);
      (fits ? taken : after_pass_[sizes]).push_back(i);
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
    for (const size_t number : in_pass_[sizes]) {
      last_use[program_.reductions[number].value] = program_.first_reduction() + number;
      ++work;
    }
    for (const size_t value : from) pass.sources.push_back(tensor_of_.at(value));
    const Ints dims = order(sizes, pass.sources);
    for (const size_t value : from)
      pass.loop.sources.push_back(source(layouts_[tensor_of_.at(value)], sizes, dims, is_mask(value)));
    for (const size_t value : constants)
      pass.loop.constants.push_back(program_.constants[value - program_.inputs_are_masks.size()]);

    pass.layout = {sizes, strides_of(sizes, dims)};
    pass.items = count(sizes);
    constexpr int64_t kGrain = 1 << 15;  // of ATen's operators
    pass.grain = std::max<int64_t>(kGrain / work, 1 << 10);
    pass.loop.streams = pass.items * sizeof(float) > last_cache();
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
    add_reductions(pass, dims, slots);
    const size_t buffers = pass.loop.registers + results.size() + from.size();
    const bool fits = pass.loop.slots() <= chain::kMostSlots && buffers <= chain::kMostBuffers;
    plan_.passes.push_back(std::move(pass));
    return fits;
  }

  // Divides what is reduced among the threads. The innermost of the dimensions are reduced in the pass, which leaves
  // tensors of the layout that is given.
  Layout divide(ChainPlan::Pass& pass, const Ints& dims, Ints order) const {
    const Ints& sizes = pass.layout.sizes;
    chain::Rows& rows = pass.loop.rows;
    const auto is_reduced = [&](int64_t dim) { return std::ranges::binary_search(dims, dim); };
    Ints left = sizes;
    auto dim = order.rbegin();
    for (; dim != order.rend() && (sizes[*dim] == 1 || !is_reduced(*dim)); ++dim) rows.columns *= sizes[*dim];
    const auto columns = dim.base();
    for (; dim != order.rend() && (sizes[*dim] == 1 || is_reduced(*dim)); ++dim) {
      rows.group *= sizes[*dim];
      left[*dim] = 1;
    }
    constexpr int64_t kMostParts = 32, kLeastPart = 1 << 15;
    const int64_t elements = count(sizes), whole = elements / (rows.columns * rows.group) * rows.strips();
    const int64_t parts = std::clamp<int64_t>(std::min(kMostParts, elements / kLeastPart) / whole, 1, rows.group);
    rows.part = (rows.group + parts - 1) / parts;
    pass.items = whole * rows.parts();
    pass.grain = std::max<int64_t>(pass.grain * pass.items / elements, 1);
    if (rows.parts() > 1) {
      order.insert(columns, static_cast<int64_t>(sizes.size()));
      left.push_back(rows.parts());
    }
    return {left, strides_of(left, order)};
  }

  void add_reductions(ChainPlan::Pass& pass, const Ints& order, const std::map<size_t, size_t>& slots) {
    const Ints& sizes = pass.layout.sizes;
    const auto divisor = [&](size_t number) {
      int64_t product = 1;
      for (const int64_t dim : dims_[number]) product *= sizes[dim];
      return program_.reductions[number].is_mean ? static_cast<float>(product) : 1.0F;
    };
    std::vector<std::pair<size_t, size_t>> rests;  // reductions, and what of
    if (const auto& numbers = in_pass_[sizes]; !numbers.empty()) {
      const Ints& dims = dims_[numbers[0]];
      const Layout left = divide(pass, dims, order);
      const bool is_whole = left.sizes.size() == sizes.size() &&
                            std::ranges::all_of(dims, [&](int64_t dim) { return left.sizes[dim] == 1; });
      pass.loop.gives_doubles = !is_whole;
      for (const size_t number : numbers) {
        const auto& reduction = program_.reductions[number];
        pass.loop.reductions.push_back(
            {reduction.reducer, static_cast<uint16_t>(slots.at(reduction.value)), is_whole ? divisor(number) : 1.0F});
        if (is_whole) {
          tensor_of_[program_.first_reduction() + number] = layouts_.size();
        } else {
          rests.emplace_back(number, layouts_.size());
        }
        pass.reduced.push_back(is_whole && !reduction.keepdim ? without(left, dims) : left);
        layouts_.push_back(pass.reduced.back());
      }
    }
    for (const size_t number : after_pass_[sizes])
      rests.emplace_back(number, tensor_of_.at(program_.reductions[number].value));
    for (const auto& [number, tensor] : rests) {
      const auto& reduction = program_.reductions[number];
      const bool has_parts = layouts_[tensor].sizes.size() > sizes.size();
      pass.rests.push_back({tensor, reduction.reducer, dims_[number], reduction.keepdim, has_parts, divisor(number)});
      if (has_parts) pass.rests.back().dims.push_back(static_cast<int64_t>(sizes.size()));
      tensor_of_[program_.first_reduction() + number] = layouts_.size();
      layouts_.emplace_back();
    }
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
  std::vector<Layout> layouts_;                               // of tensors
  std::vector<Ints> sizes_;                                   // of values
  std::map<size_t, size_t> tensor_of_;                        // values that are tensors
  std::set<size_t> leaves_pass_;                              // values that are results, or that other passes need
  std::vector<Ints> dims_;                                    // of reductions
  std::map<Ints, std::vector<size_t>> in_pass_, after_pass_;  // reductions, by the sizes of what they reduce
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
    for (const Layout& layout : pass.reduced) {
      const auto type = pass.loop.gives_doubles ? c10::kDouble : c10::kFloat;
      tensors.push_back(work_tensor(layout.sizes, layout.strides, type));
      results.push_back(tensors.back().mutable_data_ptr());
    }
    at::parallel_for(0, pass.items, pass.grain, [&](int64_t begin, int64_t end) {
      kernel()(pass.loop, sources.data(), results.data(), begin, end);
    });
    for (const ChainPlan::Rest& rest : pass.rests) tensors.push_back(reduce(tensors[rest.tensor], rest));
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
