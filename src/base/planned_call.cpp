#include "base/planned_call.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/fork_safe.h"

namespace onnxtorch {
namespace {

struct Planners {
  ForkSafeMutex mutex;
  std::unordered_map<c10::Symbol, std::vector<Planner>> by_name;
};

Planners& planners() {
  static Planners all;
  return all;
}

}  // namespace

at::Tensor PlannedOperands::tensor(size_t argument) const {
  return arguments[argument].isTensor() ? arguments[argument].toTensor() : at::Tensor();
}

void register_planner(const char* name, Planner planner) {
  Planners& all = planners();
  const std::lock_guard lock(all.mutex);
  std::vector<Planner>& known = all.by_name[c10::Symbol::fromQualString(name)];
  if (std::ranges::find(known, planner) == known.end()) known.push_back(planner);
}

std::unique_ptr<PlannedCall> plan_call(c10::Symbol name, const PlannedOperands& operands) {
  std::vector<Planner> known;
  {
    Planners& all = planners();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_name.find(name);
    if (found != all.by_name.end()) known = found->second;
  }
  for (const Planner planner : known) {
    if (auto call = planner(operands)) return call;
  }
  return {};
}

}  // namespace onnxtorch
