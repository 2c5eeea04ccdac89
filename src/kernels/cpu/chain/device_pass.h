// A pass of a chain as the kernels of other devices take it.
#pragma once

#include "kernels/cpu/chain/plan.h"
#include "kernels/standard/element_wise_pass.h"

namespace onnxtorch {

// Makes such a pass; gives null where it is larger than these kernels take, or reduces.
c10::intrusive_ptr<ElementWisePass> device_pass(const ChainPlan::Pass& pass);

}  // namespace onnxtorch
