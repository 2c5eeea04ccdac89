// A pass of a chain as the kernels of other devices take it.
#pragma once

#include "kernels/cpu/chain/plan.h"
#include "kernels/standard/element_wise_pass.h"

namespace onnxtorch {

// Null where the pass is larger than they take, or reduces.
c10::intrusive_ptr<ElementWisePass> device_pass(const ChainPlan::Pass& pass);

}  // namespace onnxtorch
