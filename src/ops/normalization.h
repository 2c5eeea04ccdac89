// Layer and RMS normalization and dropout, for the standard's operators and for those that fuse others with them.
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

// Normalizes along the dimensions from `axis` on. scale and b broadcast to x; b may be absent.
Value layer_norm(Translator& t, const Value& x, const Value& scale, const Value& b, int64_t axis, double epsilon);

// Gives the output, and the mean and the inverse of the standard deviation, in the type of x. The output has that of
// the scale.
Values layer_norm_with_statistics(Translator& t, const Value& x, const Value& scale, const Value& b, int64_t axis,
                                  double epsilon);

// Normalizes by the root of the mean square. The output has the type of the scale.
Value rms_norm(Translator& t, const Value& x, const Value& scale, int64_t axis, double epsilon);

// Gives the output and the mask, which is of bools. The ratio is input i of the node, and training_mode the next one.
Values dropout(Translator& t, const NodeView& n, const Value& x, size_t i);

}  // namespace onnxtorch
