// What the layers of recurrent cells share.
#pragma once

#include <string>
#include <vector>

#include "translate/translator.h"

namespace onnxtorch {

// Of one direction after another.
struct Activations {
  std::vector<std::string> names;
  std::vector<double> alphas, betas;

  Activations slice(size_t from, size_t count) const;
};

// As the attributes tell them; `defaults` are those of one direction.
Activations activations_of(const NodeView& n, const std::vector<std::string>& defaults, size_t directions);

// How many directions the node has; an error where there is no such direction.
size_t directions_of(const NodeView& n);

// In the order of a direction's steps, or back.
Value in_order(Translator& t, const Value& over_time, bool reverse);

bool flag(const NodeView& n, std::string_view name);  // false where it is absent

// The layer that onnxruntime adds to the standard's.
Values dynamic_quantize_lstm(Translator& t, const NodeView& n);

}  // namespace onnxtorch
