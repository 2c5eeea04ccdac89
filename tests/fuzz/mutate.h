// Makes models of models that are wrong somewhere, or right in an unusual way.
#pragma once

#include <string>

#include "random.h"

namespace onnxtorch::fuzz {

// Changes some things of a model: what nodes read and give, attributes, tensors, types, sizes, versions, the order of
// nodes; nodes and tensors come from the other model as well. Bytes that are no model stay.
std::string mutate_model(const std::string& bytes, const std::string& other, Random& random);

// Changes, adds, takes out and repeats bytes.
void mutate_bytes(std::string& bytes, const std::string& other, Random& random);

}  // namespace onnxtorch::fuzz
