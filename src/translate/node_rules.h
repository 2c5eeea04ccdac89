// The checks of every node before it is translated: of its inputs' types, and of the range of attributes that torch and
// the kernels trust.
#pragma once

#include "translate/node_view.h"

namespace onnxtorch {

// Throws InvalidModelError where an input is of a type that the schema does not allow, where two of one type parameter
// differ, where a required one is missing, or where an attribute is a number that no tensor has room for. A type that
// is not known is not checked.
void check_node(const NodeView& n);

// Checks the types of its outputs likewise, where an attribute names one.
void check_outputs(const NodeView& n, const Values& outputs);

}  // namespace onnxtorch
