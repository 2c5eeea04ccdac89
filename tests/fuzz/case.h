// A model, and what its inputs are fed.
#pragma once

#include <onnx/onnx-ml.pb.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "onnx_torch/model.h"

namespace onnxtorch::fuzz {

struct Case {
  onnx::ModelProto model;
  std::map<std::string, Data> feeds;
};

// Reads a case, whose inputs are fed from initializers of their names. Gives none where the bytes are no model.
std::optional<Case> case_of(const std::string& bytes);

// Tells whether one of the names, or a longer one, is anywhere in a model.
bool names_one_of(const onnx::ModelProto& model, std::initializer_list<std::string_view> names);

// Tells whether a number that a case gives its model, or one of the model's own, is beyond `most` or a NaN.
bool holds_beyond(const Case& of, float most);

// Tells whether a model gives something else each time.
bool draws_numbers(const onnx::ModelProto& model);

// Tells whether there is more than one result that a case may have, as ways to compute it differ: docs/fuzzing.md.
bool is_undecided(const Case& of);

}  // namespace onnxtorch::fuzz
