// What is done with a model that may be anything. A target returns, or throws what is no error of the package.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace onnxtorch::fuzz {

// What became of an input: where it stopped being one that makes sense.
enum class Outcome { NoModel, Refused, Prepared, Failed, Ran };

using Target = Outcome(const std::string& bytes);

// By their names. Bytes are a model, whose inputs are fed from initializers of their names, or an image's file.
//
//   prepare       reads, checks and prepares it
//   run           and runs it
//   differential  and compares that with what the operators give one by one, and with a pass left out
//   image         decodes it
const std::map<std::string_view, Target*>& targets();

}  // namespace onnxtorch::fuzz
