// The functions that the layers of recurrent cells share.
#pragma once

#include <string>
#include <vector>

#include "translate/translator.h"

namespace onnxtorch {

// The activations of one direction after another.
struct Activations {
  std::vector<std::string> names;
  std::vector<double> alphas, betas;

  Activations slice(size_t from, size_t count) const;
};

// Gives the activations as the attributes tell them; `defaults` are those of one direction.
Activations activations_of(const NodeView& n, const std::vector<std::string>& defaults, size_t directions);

// Gives the number of the node's directions; fails where there is no such direction.
size_t directions_of(const NodeView& n);

// Brings steps in time into the order of a direction's steps, or back.
Value in_order(Translator& t, const Value& over_time, bool reverse);

// gives false where it is absent
Values dynamic_quantize_lstm(Translator& t, const NodeView& n);

}  // namespace onnxtorch
