// What is done with a model that may be anything. A target returns, or throws what is no error of the package.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace onnxtorch::fuzz {

// What became of an input: where it stopped being one that makes sense.
enum class Outcome { NoModel, Refused, Prepared, Failed, Ran };

using Target = Outcome(const std::string& bytes);

// By their names. Bytes are a model, whose inputs are fed from initializers of their names, an image's file, or lines
// of text.
//
//   prepare       reads, checks and prepares it
//   run           and runs it
//   differential  and compares that with what the operators give one by one, and with a pass left out
//   plan          and compares that with what its plans give
//   saved         runs it with weights that were laid out before
//   file          writes it into a folder, loads it by its path, and runs it
//   image         decodes it
//   text          hands its lines to an operator on strings, which the first one names
const std::map<std::string_view, Target*>& targets();

Target saved, file, text;

// A model may ask for as much as it likes, and takes as long then. Here it gets a gigabyte, while it is prepared and in
// its run, and so many seconds to be prepared: what does not heed them is found to hang.
constexpr double kMemory = 1e9, kPrepareSeconds = 5;

// ATen and the image decoder warn of much that a changed model asks for. Nothing in this thread is told any more.
void ignore_warnings();

// Whatever the package refuses is an outcome; other exceptions are not.
Outcome outcome_of(Outcome where_refused, const std::function<Outcome()>& work);

}  // namespace onnxtorch::fuzz
