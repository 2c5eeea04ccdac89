// The recorder of plans: it runs a program node by node, and keeps what it did for other runs of the same sizes.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <span>
#include <vector>

#include "graph/program.h"
#include "runtime/plan/plan.h"
#include "runtime/targets.h"

namespace onnxtorch {

struct Recorded {
  std::vector<c10::IValue> results;
  std::shared_ptr<const Plan> plan;
};

// Runs the program, and records its plan. Throws what the run throws, and where this run can have no plan. The plan may
// rely on a branch that data decides to give tensors of the forms that it gave in this run, and tells where a run
// differs (OtherForm).
Recorded record_plan(const Program& program, std::span<const c10::IValue> inputs,
                     const c10::intrusive_ptr<StringPool>& strings, const Targets& targets, bool relies_on_branches);

}  // namespace onnxtorch
