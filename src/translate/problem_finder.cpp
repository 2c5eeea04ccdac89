#include "translate/problem_finder.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "base/prepare_guard.h"
#include "translate/node_view.h"

namespace onnxtorch {
namespace {

// Tells whether a node would fail with inputs that are known, too. Torch, whose errors are of the plain type Error, may
// just miss their types; so may the translator where nothing tells them.
bool fails_anyway(const Error& error, const NodeView& view) {
  const auto typed = [](const Value& input) { return input.absent() || input.type.known(); };
  return typeid(error) != typeid(Error) && std::ranges::all_of(view.inputs(), typed);
}

Problem problem_of(const Error& error, const NodeLabel& node) {
  const NodeLabel& blamed = error.node().empty() ? node : error.node();
  const std::string prefix = blamed.str() + ": ";
  const std::string why = error.what();
  const bool unsupported = dynamic_cast<const UnsupportedError*>(&error) != nullptr;
  return {blamed, why.starts_with(prefix) ? why.substr(prefix.size()) : why, unsupported};
}

}  // namespace

std::vector<Problem> ProblemFinder::problems() {
  translate_model();
  return std::move(problems_);
}

Values ProblemFinder::outputs_of(const NodeView& view) {
  const bool around_lacking = std::exchange(lacking_, lacking_ || lacks_inputs(view));
  const size_t failures = failures_;
  const TranslationPosition here = position();
  Values outputs;
  try {
    outputs = GraphTranslator::outputs_of(view);
  } catch (const StoppedError&) {
    throw;
  } catch (const Error& error) {
    return_to(here);
    const bool body_failed = failures_ > failures;
    if (!body_failed && (!lacking_ || fails_anyway(error, view))) note(problem_of(error, view.label()));
    ++failures_;
    outputs.clear();
    for (size_t i = 0; i < view.output_count(); ++i) outputs.push_back(unknown(type_of_output(view, i)));
  }
  if (lacking_ || failures_ > failures) {
    for (const Value& output : outputs) unknown_.insert(output.graph);
  }
  lacking_ = around_lacking;
  return outputs;
}

bool ProblemFinder::lacks_inputs(const NodeView& view) const {
  const auto lacks = [&](const Value& input) { return !input.absent() && unknown_.contains(input.graph); };
  return std::ranges::any_of(view.inputs(), lacks);
}

// Notes a problem. A function that is called twice has its problems once.
void ProblemFinder::note(Problem problem) {
  const auto same = [&](const Problem& known) {
    return known.node.str() == problem.node.str() && known.why == problem.why;
  };
  if (position().depth == 0 || std::ranges::none_of(problems_, same)) problems_.push_back(std::move(problem));
}

std::vector<Problem> translation_problems(const std::shared_ptr<const ModelFile>& model,
                                          const TranslateOptions& options) {
  const PrepareGuard guard(options.limits);
  return ProblemFinder(model, options).problems();
}

}  // namespace onnxtorch
