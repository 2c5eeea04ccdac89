#include "passes/device/waits.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "graph/graph_location.h"
#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "graph/walk.h"
#include "onnx_torch/error.h"
#include "passes/device/host_work.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

constexpr const char *kCount = "how many elements the result has", *kMask = "how many elements a mask picks",
                     *kChecks = "whether the operands are valid", *kSolver = "a solver",
                     *kNumbers = "numbers of the host";

// The waits, by what ATen's sources for CUDA read back (item, nonzero, copies to the host), but for those whose results
// have sizes that elements decide (Trait::SizedByData). The number of combinations follows from sizes, yet ATen picks
// them by a mask. What repeat_interleave and one_hot wait for depends on their operands.
constexpr Wait kWaits[] = {
    {"aten::combinations", kCount},
    {"aten::repeat_interleave", kCount},
    {"aten::one_hot", kCount},
    {"aten::where", kMask},
    {"aten::index", kMask},
    {"aten::index_put", kMask},
    {"aten::index_put_", kMask},
    {"aten::histc", "the range of the operand"},
    {"aten::is_nonzero", "a number"},
    {"aten::allclose", "a number"},
    {"aten::multinomial", kChecks},
    {"aten::istft", kChecks},
    {"aten::linalg_det", kSolver},
    {"aten::linalg_slogdet", kSolver},
    {"aten::linalg_inv", kSolver},
    {"aten::linalg_solve", kSolver},
    {"aten::linalg_cholesky", kSolver},
    {"aten::linalg_eigh", kSolver},
    {"aten::linalg_svd", kSolver},
    {"aten::linalg_qr", kSolver},
    {"aten::linalg_lstsq", kSolver},
    {"aten::linalg_pinv", kSolver},
    {"aten::tensor", kNumbers},
    {"aten::as_tensor", kNumbers},
    {"aten::affine_grid_generator", kNumbers},
};

// Gives the row of an operator; null where it has none.
const Wait* row_of(c10::Symbol op) {
  const auto* const found = std::ranges::find_if(
      kWaits, [name = std::string_view(op.toQualString())](const Wait& wait) { return name == wait.name; });
  return found == std::end(kWaits) ? nullptr : found;
}

bool may_be_mask(const jit::Value* index) {
  const auto type = type_of(index);
  return is_tensor(index) && type && (*type == at::kBool || *type == at::kByte);
}

// Tells whether an operator that waits for some operands waits for these.
bool waits_for_operands(const jit::Node* node) {
  const std::string_view name = node->kind().toQualString();
  if (name == "aten::where") return node->inputs().size() == 1;
  if (name == "aten::repeat_interleave") return node->inputs().size() == 2 || is_tensor(node->input(1));
  if (name == "aten::one_hot") {
    const auto classes = jit::toIValue(node->input(1));
    return classes && classes->toInt() == -1;
  }
  if (name == "aten::affine_grid_generator") {  // one element along a dimension is a zero of the host's
    const auto sizes = jit::toIValue(node->input(1));
    return !sizes || std::ranges::count(sizes->toIntVector() | std::views::drop(2), 1) > 0;
  }
  if (name == "aten::index" || name == "aten::index_put" || name == "aten::index_put_")
    return std::ranges::any_of(node->input(1)->node()->inputs(), may_be_mask);
  if (name == "aten::tensor" || name == "aten::as_tensor") {  // the device is the third operand
    const jit::Value* const device = node->input(2);
    const auto known = jit::toIValue(device);
    return !device->mustBeNone() && !(known && known->isDevice() && known->toDevice().is_cpu());
  }
  return true;
}

bool is_flow(const jit::Node* node) { return node->kind() == c10::prim::If || node->kind() == c10::prim::Loop; }

}  // namespace

std::vector<Wait> waits() {
  std::vector<Wait> all(std::begin(kWaits), std::end(kWaits));
  for (const c10::Symbol op : operators_with(Trait::SizedByData)) {
    const std::string_view name = op.toQualString();
    const bool is_of_host = std::ranges::any_of(host_work(), [&](const HostWork& work) { return name == work.name; });
    if (!row_of(op) && !is_of_host) all.push_back({op.toQualString(), kCount});
  }
  return all;
}

const char* waits_for(const jit::Node* node, c10::Device device) {
  if (is_flow(node)) return nullptr;  // the condition has been read before, or is the host's
  if (const char* const what = host_work(node, device)) return what;
  if (const Wait* const row = row_of(node->kind())) return waits_for_operands(node) ? row->what : nullptr;
  return has(node, Trait::SizedByData) ? kCount : nullptr;
}

void check_recordable(const Program& program, c10::Device device) {
  if (program.needs_autograd) throw UnsupportedError("the runs of a model with Gradient cannot be recorded");
  for (const InputSpec& input : program.inputs) {
    if (input.type.kind == ValueType::Kind::Tensor) continue;
    throw UnsupportedError("runs cannot be recorded with the input \"" + input.name + "\", which is not a tensor");
  }
  std::set<std::pair<size_t, std::string>> waiting;
  for_each_node(program.graph->block(), [&](const jit::Node* node) {
    if (const char* const what = waits_for(node, device)) waiting.emplace(node_number(node).value_or(0), what);
  });
  if (waiting.empty()) return;
  std::string lines;
  for (const auto& [number, what] : waiting) lines += "\n  " + program.nodes.at(number).label.str() + ": " + what;
  throw UnsupportedError(
      "runs cannot be recorded, as at these nodes the host has a part, or waits for the device:" + lines,
      program.nodes.at(waiting.begin()->first).label);
}

}  // namespace onnxtorch
