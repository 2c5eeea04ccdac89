#include <torch/csrc/jit/ir/ir.h>

#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "graph/pattern.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the size of the last dimension, where it is known.
std::optional<int64_t> row_size(const jit::Value* x) {
  const auto sizes = x->type()->expectRef<c10::TensorType>().sizes();
  return sizes.size().value_or(0) > 0 ? sizes[*sizes.size() - 1] : std::nullopt;
}

// Tells whether a slice goes to the end of rows, of this size if that is known.
bool goes_to_end(const Found& found, const char* end, std::optional<int64_t> size) {
  const auto known = found.constants(found[end]);
  const auto least = static_cast<double>(size.value_or(std::numeric_limits<int64_t>::max()));
  return known && (known->isNone() || found.constants.number(found[end]) >= least);
}

// Tells whether the first slice is of the first half, and the other of the second; what is not known, a run looks at.
bool are_halves(const Found& found, std::optional<int64_t> size) {
  const jit::Value* const begin = found["other_begin"];
  const auto middle = found.constants.number(begin);
  const bool meet = found["end"] == begin || (middle && found.is("end", *middle));
  return meet && begin->type()->kind() == c10::TypeKind::IntType &&
         (!middle || !size || 2 * *middle == static_cast<double>(*size)) && found.is("begin", 0) &&
         found.is("step", 1) && goes_to_end(found, "other_end", size) && found.is("other_step", 1) &&
         found.is_last("join", "x");
}

// Tells whether the first slice is of the even elements, and the other of the odd ones.
bool are_pairs(const Found& found, std::optional<int64_t> size) {
  return found.is("begin", 0) && goes_to_end(found, "end", size) && found.is("step", 2) && found.is("other_begin", 1) &&
         goes_to_end(found, "other_end", size) && found.is("other_step", 2) && found.is("join", -1) &&
         found.is("from", -2) && found.is("to", -1);
}

// A way to write a quarter of a turn.
struct Way {
  const char* inputs;
  const char* steps;
  bool (*fits)(const Found& found, std::optional<int64_t> size);
  bool interleaved;
};

constexpr Way kWays[] = {
    {"", "%turned : Tensor = aten::cat(%both, %join)", are_halves, false},
    {", %from, %to",
     "%pairs : Tensor = aten::stack(%both, %join)\n  %turned : Tensor = aten::flatten(%pairs, %from, %to)", are_pairs,
     true},
};

// Gives the patterns of a way. The operands of products and sums come in any order, as sort_operands cannot tell which
// of them is `x`.
std::vector<std::string> patterns_of(const Way& way) {
  std::vector<std::string> patterns;
  for (const char* const same : {"%x, %cos", "%cos, %x"}) {
    for (const char* const turn : {"%turned, %sin", "%sin, %turned"}) {
      for (const char* const sum : {"%u, %v", "%v, %u"}) {
        patterns.push_back(c10::str(R"(graph(%x, %cos, %sin, %dim, %begin, %end, %step,
                                             %other_dim, %other_begin, %other_end, %other_step, %join, %alpha)",
                                    way.inputs, R"():
  %other : Tensor = aten::slice(%x, %other_dim, %other_begin, %other_end, %other_step)
  %opposite : Tensor = aten::neg(%other)
  %first : Tensor = aten::slice(%x, %dim, %begin, %end, %step)
  %both : Tensor[] = prim::ListConstruct(%opposite, %first)
  )",
                                    way.steps, "\n  %u : Tensor = aten::mul(", same, ")\n  %v : Tensor = aten::mul(",
                                    turn, ")\n  %y : Tensor = aten::add(", sum, ", %alpha)\n  return (%y)"));
      }
    }
  }
  return patterns;
}

}  // namespace

void find_rotary_embeddings(Program& program) {
  register_rotary_embedding();
  static const std::array<std::vector<std::string>, std::size(kWays)> kPatterns{patterns_of(kWays[0]),
                                                                                patterns_of(kWays[1])};
  for (size_t i = 0; i < kPatterns.size(); ++i) {
    const Way& way = kWays[i];
    for (const std::string& pattern : kPatterns[i]) {
      rewrite(program, pattern, [&](const Found& found, jit::Graph& graph) -> jit::Value* {
        const auto size = row_size(found["x"]);
        const bool fits = size.value_or(0) % 2 == 0 && way.fits(found, size) && found.is_last("dim", "x") &&
                          found.is_last("other_dim", "x") && found.is("alpha", 1);
        if (!fits) return nullptr;
        jit::Value* const half = way.interleaved ? graph.insertConstant(c10::IValue()) : found["other_begin"];
        return graph.insert(c10::Symbol::fromQualString("onnx_torch::rotary_embedding"),
                            {found["x"], found["cos"], found["sin"], half});
      });
    }
  }
}

}  // namespace onnxtorch
