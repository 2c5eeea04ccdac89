// What carries a state in place of a past: linear attention, convolutions with a state, AttnLSTM.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_state_space_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
