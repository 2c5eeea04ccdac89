#include "kernels/cpu/chain/plan.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <span>
#include <tuple>

#include "base/memory_order.h"

namespace onnxtorch {
namespace {

using chain::Loop;
using chain::Op;
using chain::Source;
using chain::Type;
using Ints = std::vector<int64_t>;
using Layout = ChainPlan::Layout;
using Pass = ChainPlan::Pass;

// Gives how much work an operator is, next to an addition.
int64_t weight(Op op) {
  switch (op) {
    case Op::Exp:
    case Op::Expm1:
    case Op::Log:
    case Op::Log1p:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::Erf:
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

bool has(const std::vector<size_t>& list, size_t number) { return std::ranges::find(list, number) != list.end(); }

int64_t count(const Ints& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies()); }

// Tells whether the strides are equal, wherever they matter.
bool same_strides(const Ints& sizes, const Ints& a, const Ints& b) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  }
  return true;
}

// Gives how a pass over `sizes`, with the dimensions in this order, reads a tensor.
Source source(const Layout& tensor, const Ints& sizes, const Ints& order, Type type) {
  if (count(tensor.sizes) == 1) return {Source::Kind::Splat, type, {}, {}};
  Source result{Source::Kind::Strided, type, {}, {}};
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

// Gives the dimensions that are reduced, the first one first; ATen lets a scalar have one. Returns none where ATen has
// an error.
std::optional<Ints> reduced_dims(const ChainProgram::Reduction& reduction, int64_t rank) {
  const int64_t limit = std::max<int64_t>(rank, 1);
  std::set<int64_t> dims;
  for (const int64_t dim : reduction.dims) {
    if (dim < -limit || dim >= limit || !dims.insert(dim < 0 ? dim + limit : dim).second) return {};
  }
  for (int64_t dim = 0; dim < rank && reduction.dims.empty(); ++dim) dims.insert(dim);
  return rank == 0 ? Ints() : Ints(dims.begin(), dims.end());
}

// Divides what is reduced among the threads. The innermost of the dimensions are reduced in the pass, which goes
// through memory in this order, and leaves tensors of the layout that is returned.
Layout divide(Pass& pass, const Ints& dims, Ints order) {
  const Ints& sizes = pass.layout.sizes;
  chain::ReducedRows& rows = pass.loop.rows;
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
  pass.cost = pass.cost * elements / pass.items;
  if (rows.parts() > 1) {
    order.insert(columns, static_cast<int64_t>(sizes.size()));
    left.push_back(rows.parts());
  }
  return {left, strides_of(left, order)};
}

// Gives the size of the last cache in bytes, as Linux tells it; unlimited where it does not.
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

  std::optional<ChainPlan> plan() {
    if (!find_sizes() || !find_reductions()) return {};
    find_leaving();
    // A value's operands are of fewer elements, or dimensions, or of its own size.
    std::map<std::tuple<int64_t, size_t, Ints>, std::vector<size_t>> instructions;
    for (size_t i = program_.first_instruction(); i < sizes_.size(); ++i)
      instructions[{count(sizes_[i]), sizes_[i].size(), sizes_[i]}].push_back(i);
    for (const auto& [key, values] : instructions) {
      if (!add_pass(std::get<Ints>(key), values)) return {};
    }
    for (const size_t value : program_.results) plan_.results.push_back(tensor_of_.at(value));
    for (Pass& pass : plan_.passes) share_memory(pass);
    plan_.inputs = program_.input_types.size();
    plan_.tensors = layouts_.size();
    return std::move(plan_);
  }

 private:
  // The values of a pass, and the reductions that it does.
  struct Members {
    std::vector<size_t> sources, constants, instructions, results;
    std::vector<size_t> reductions;
  };

  const ChainProgram::Instruction& instruction(size_t value) const {
    return program_.instructions[value - program_.first_instruction()];
  }
  bool is_constant(size_t value) const {
    return value >= program_.input_types.size() && value < program_.first_instruction();
  }
  Type type_of(size_t value) const {
    return value < program_.input_types.size() ? program_.input_types[value] : instruction(value).type;
  }

  bool find_sizes() {
    for (const Layout& layout : layouts_) sizes_.push_back(layout.sizes);
    sizes_.resize(program_.first_instruction());
    for (const auto& step : program_.instructions) {
      Ints sizes;
      for (const size_t operand : step.operands) {
        const Ints& other = sizes_[operand];
        if (sizes == other) continue;
        if (!at::are_expandable(sizes, other)) return false;
        sizes = at::infer_size(sizes, other);
      }
      sizes_.push_back(std::move(sizes));
    }
    return true;
  }

  // Divides the reductions: those of one shape and over the same dimensions are computed in the pass, the others after
  // it.
  bool find_reductions() {
    for (size_t i = 0; i < program_.reductions.size(); ++i) {
      const Ints& sizes = sizes_[program_.reductions[i].value];
      auto dims = reduced_dims(program_.reductions[i], static_cast<int64_t>(sizes.size()));
      if (!dims) return false;
      dims_.push_back(*std::move(dims));
      auto& taken = in_pass_[sizes];
      const bool fits = taken.size() < chain::kMostReductions && (taken.empty() || dims_[taken[0]] == dims_[i]);
      (fits ? taken : after_pass_[sizes]).push_back(i);
    }
    return true;
  }

  void find_leaving() {
    leaves_pass_.insert(program_.results.begin(), program_.results.end());
    for (size_t i = program_.first_instruction(); i < sizes_.size(); ++i) {
      for (const size_t operand : instruction(i).operands) {
        if (sizes_[operand] != sizes_[i]) leaves_pass_.insert(operand);
      }
    }
    for (const auto& [sizes, reductions] : after_pass_) {
      for (const size_t number : reductions) leaves_pass_.insert(program_.reductions[number].value);
    }
  }

  // Adds a pass; returns false where it is too large.
  bool add_pass(const Ints& sizes, const std::vector<size_t>& instructions) {
    const Members members = members_of(sizes, instructions);
    Pass pass;
    for (const size_t value : members.sources) pass.sources.push_back(tensor_of_.at(value));
    const Ints order = order_of_pass(sizes, pass.sources);
    pass.layout = {sizes, strides_of(sizes, order)};
    pass.items = count(sizes);
    pass.cost = cost(members);
    pass.loop.streams = pass.items * sizeof(float) > last_cache();
    add_operands(pass, members, order);
    add_results(pass, members);
    const auto slots = find_slots(pass.loop, members);
    add_steps(pass.loop, members, slots);
    if (!members.reductions.empty()) reduce_in_pass(pass, members, order, slots);
    reduce_after_pass(pass, members);
    const size_t buffers = pass.loop.registers + pass.results.size() + pass.sources.size();
    const bool fits = pass.loop.slots() <= chain::kMostSlots && buffers <= chain::kMostBuffers;
    plan_.passes.push_back(std::move(pass));
    return fits;
  }

  Members members_of(const Ints& sizes, const std::vector<size_t>& instructions) {
    Members members{{}, {}, instructions, {}, in_pass_[sizes]};
    const auto here = [&](size_t value) { return value >= program_.first_instruction() && sizes_[value] == sizes; };
    for (const size_t value : instructions) {
      if (leaves_pass_.contains(value)) members.results.push_back(value);
      for (const size_t operand : instruction(value).operands) {
        auto& list = is_constant(operand) ? members.constants : members.sources;
        if (!here(operand) && !has(list, operand)) list.push_back(operand);
      }
    }
    return members;
  }

  // Gives the order of dimensions in which a pass goes through memory: that of the first tensor of its size.
  Ints order_of_pass(const Ints& sizes, const std::vector<size_t>& tensors) const {
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

  // Gives the cost of an element.
  int64_t cost(const Members& members) const {
    constexpr int64_t kMost = 32;
    auto work = static_cast<int64_t>(members.reductions.size());
    for (const size_t value : members.instructions) work += weight(instruction(value).op);
    return std::min(work, kMost);
  }

  void add_operands(Pass& pass, const Members& members, const Ints& order) const {
    for (const size_t value : members.sources) {
      const Layout& layout = layouts_[tensor_of_.at(value)];
      pass.loop.sources.push_back(source(layout, pass.layout.sizes, order, type_of(value)));
    }
    for (const size_t value : members.constants)
      pass.loop.constants.push_back(program_.constants[value - program_.input_types.size()]);
  }

  void add_results(Pass& pass, const Members& members) {
    for (const size_t value : members.results) {
      pass.loop.result_types.push_back(type_of(value));
      pass.results.push_back(add_tensor(value, pass.layout));
    }
  }

  // Assigns the next tensor to a value, or to the parts that it is computed from, and returns the tensor's index.
  size_t add_tensor(size_t value, Layout layout) {
    layouts_.push_back(std::move(layout));
    return tensor_of_[value] = layouts_.size() - 1;
  }

  // Assigns slots to the values. Registers are taken again as soon as their values are not needed any more.
  std::map<size_t, size_t> find_slots(Loop& loop, const Members& members) const {
    std::map<size_t, size_t> slots, registers;
    for (const auto* list : {&members.sources, &members.constants}) {
      for (const size_t value : *list) slots.emplace(value, slots.size());
    }
    const size_t first_register = slots.size();
    const auto last_readers = find_last_readers(members);
    std::vector<size_t> free;
    for (const size_t value : members.instructions) {
      for (const size_t operand : instruction(value).operands) {
        const auto held = registers.find(operand);
        if (held == registers.end() || last_readers.at(operand) != value) continue;
        free.push_back(held->second);
        registers.erase(held);
      }
      if (has(members.results, value)) continue;
      if (free.empty()) free.push_back(first_register + loop.registers++);
      slots[value] = registers[value] = free.back();
      free.pop_back();
    }
    size_t next = first_register + loop.registers;
    for (const size_t value : members.results) slots[value] = next++;
    return slots;
  }

  // Finds the instruction that reads a value last, or the reduction, which comes after the instructions.
  std::map<size_t, size_t> find_last_readers(const Members& members) const {
    std::map<size_t, size_t> readers;
    for (const size_t value : members.instructions) {
      for (const size_t operand : instruction(value).operands) readers[operand] = value;
    }
    for (const size_t number : members.reductions)
      readers[program_.reductions[number].value] = program_.first_reduction() + number;
    return readers;
  }

  void add_steps(Loop& loop, const Members& members, const std::map<size_t, size_t>& slots) const {
    for (const size_t value : members.instructions) {
      const auto& [op, type, operands, a, b] = instruction(value);
      chain::Step step{op, type, static_cast<uint16_t>(slots.at(value)), {}, a, b};
      // What the operator does not take is the first once more, so that no source seems to be read.
      for (size_t i = 0; i < std::size(step.operands); ++i)
        step.operands[i] = static_cast<uint16_t>(slots.at(operands[i < operands.size() ? i : 0]));
      loop.steps.push_back(step);
    }
  }

  // Gives what a reduction's result is divided by.
  float divisor(size_t number) const {
    const auto& reduction = program_.reductions[number];
    int64_t product = 1;
    if (reduction.is_mean) {
      for (const int64_t dim : dims_[number]) product *= sizes_[reduction.value][dim];
    }
    return static_cast<float>(product);
  }

  // Adds reductions to the pass, which gives their results as floats where nothing is left to reduce, else as doubles.
  void reduce_in_pass(Pass& pass, const Members& members, const Ints& order, const std::map<size_t, size_t>& slots) {
    const Ints& dims = dims_[members.reductions[0]];
    const Layout left = divide(pass, dims, order);
    const bool is_whole =
        pass.loop.rows.parts() == 1 && std::ranges::all_of(dims, [&](int64_t dim) { return left.sizes[dim] == 1; });
    pass.loop.gives_doubles = !is_whole;
    for (const size_t number : members.reductions) {
      const auto& reduction = program_.reductions[number];
      const auto slot = static_cast<uint16_t>(slots.at(reduction.value));
      pass.loop.reductions.push_back({reduction.reducer, slot, is_whole ? divisor(number) : 1.0F});
      pass.reduced.push_back(is_whole && !reduction.keepdim ? without(left, dims) : left);
      add_tensor(program_.first_reduction() + number, pass.reduced.back());
    }
  }

  // Adds what is left to ATen: the parts and dimensions that the pass leaves, and reductions that do not fit into it.
  void reduce_after_pass(Pass& pass, const Members& members) {
    if (pass.loop.gives_doubles) {
      for (const size_t number : members.reductions)
        add_rest(pass, number, tensor_of_.at(program_.first_reduction() + number));
    }
    for (const size_t number : after_pass_[pass.layout.sizes])
      add_rest(pass, number, tensor_of_.at(program_.reductions[number].value));
  }

  void add_rest(Pass& pass, size_t number, size_t tensor) {
    const auto& reduction = program_.reductions[number];
    const size_t rank = pass.layout.sizes.size();
    const bool has_parts = layouts_[tensor].sizes.size() > rank;
    Ints dims = dims_[number];
    if (has_parts) dims.push_back(static_cast<int64_t>(rank));
    pass.rests.push_back({tensor, reduction.reducer, std::move(dims), reduction.keepdim, has_parts, divisor(number)});
    add_tensor(program_.first_reduction() + number, {});
  }

  // Tells whether the pass is the last to read a tensor.
  bool is_last_to_read(const Pass& pass, size_t tensor) const {
    const auto reads = [&](const Pass& other) { return has(other.sources, tensor); };
    return !has(plan_.results, tensor) && std::ranges::none_of(std::span(&pass + 1, &plan_.passes.back() + 1), reads);
  }

  // Lets a result take the memory of a source that has its layout, and that no step reads after the result is written.
  void share_memory(Pass& pass) const {
    const Loop& loop = pass.loop;
    const auto last_read = [&](size_t slot) {
      const auto found = std::ranges::find_if(loop.steps | std::views::reverse, [&](const chain::Step& step) {
        return std::ranges::count(step.operands, slot) > 0;
      });
      return loop.steps.rend() - found;
    };
    const size_t first_result = loop.slots() - pass.results.size();
    pass.over.resize(pass.results.size());
    for (size_t i = 0; i < pass.results.size(); ++i) {
      if (loop.result_types[i] != Type::Float) continue;
      const auto written =
          std::ranges::find(loop.steps, first_result + i, &chain::Step::result) - loop.steps.begin() + 1;
      for (size_t slot = 0; slot < pass.sources.size(); ++slot) {
        const size_t tensor = pass.sources[slot];
        const Source& source = loop.sources[slot];
        if (source.kind == Source::Kind::Direct && source.type == Type::Float &&
            layouts_[tensor].sizes == pass.layout.sizes && last_read(slot) <= written &&
            std::ranges::count(pass.over, tensor) == 0 && is_last_to_read(pass, tensor)) {
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
  std::set<size_t> leaves_pass_;                              // values that are results, or needed after their pass
  std::vector<Ints> dims_;                                    // of reductions
  std::map<Ints, std::vector<size_t>> in_pass_, after_pass_;  // reductions, by the sizes of what they reduce
};

}  // namespace

std::optional<ChainPlan> plan_chain(const ChainProgram& program, at::TensorList inputs) {
  return Planner(program, inputs).plan();
}

}  // namespace onnxtorch
