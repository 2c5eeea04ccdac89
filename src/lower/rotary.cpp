#include "lower/rotary.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/work_memory.h"
#include "lower/cpu_features.h"
#include "lower/memory_order.h"
#include "lower/simd/rotary.h"
#include "passes/pattern.h"
#include "passes/registered.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// --- The operator ----------------------------------------------------------------------------------------------------

// A quarter of a turn: the pairs [a, b] become [-b, a]. Without a half, they are neighbours.
at::Tensor quarter_turn(const at::Tensor& x, std::optional<int64_t> half) {
  if (half) return at::cat({x.slice(-1, *half).neg(), x.slice(-1, 0, *half)}, -1);
  return at::stack({x.slice(-1, 1, std::nullopt, 2).neg(), x.slice(-1, 0, std::nullopt, 2)}, -1).flatten(-2);
}

bool has_plain_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == c10::kFloat && x.layout() == c10::kStrided && x.dim() > 0 &&
         x.stride(-1) == 1;
}

// Where a row begins, of those along the last dimension.
int64_t place_of_row(int64_t row, const at::Tensor& tensor) {
  int64_t place = 0;
  for (int64_t d = tensor.dim() - 2; d >= 0; --d) {
    place += row % tensor.size(d) * tensor.stride(d);
    row /= tensor.size(d);
  }
  return place;
}

at::Tensor rotary_embedding(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            std::optional<int64_t> half) {
  const auto is_for_rows = [&](const at::Tensor& factor) {
    return has_plain_rows(factor) && factor.size(-1) == x.size(-1) && at::is_expandable_to(factor.sizes(), x.sizes());
  };
  const bool fits = has_plain_rows(x) && x.numel() > 0 && x.size(-1) % 2 == 0 &&
                    half.value_or(x.size(-1) / 2) == x.size(-1) / 2 && is_for_rows(cos) && is_for_rows(sin);
  if (!fits) return quarter_turn(x, half) * sin + x * cos;

  constexpr int64_t kGrain = 1 << 13;  // elements
  std::vector<int64_t> order = order_of(x.strides().slice(0, x.dim() - 1));
  order.push_back(x.dim() - 1);
  const at::Tensor result = x.is_non_overlapping_and_dense()
                                ? work_tensor_over(x)
                                : work_tensor(x.sizes(), strides_of(x.sizes().vec(), order), c10::kFloat);
  const at::Tensor from = x.permute(order), to = result.permute(order);
  const at::Tensor cosines = cos.expand(x.sizes()).permute(order), sines = sin.expand(x.sizes()).permute(order);
  const int64_t size = from.size(-1), along = from.dim() > 1 ? from.size(-2) : 1;
  const auto step = [](const at::Tensor& tensor) { return tensor.dim() > 1 ? tensor.stride(-2) : 0; };
  const auto& kernels = for_this_cpu<RotaryKernels>();
  const auto turn = half ? kernels.turn_halves : kernels.turn_pairs;
  at::parallel_for(0, from.numel() / size, std::max<int64_t>(1, kGrain / size), [&](int64_t row, int64_t end) {
    while (row < end) {
      const auto* read = from.const_data_ptr<float>() + place_of_row(row, from);
      const auto* c = cosines.const_data_ptr<float>() + place_of_row(row, cosines);
      const auto* s = sines.const_data_ptr<float>() + place_of_row(row, sines);
      auto* write = to.mutable_data_ptr<float>() + place_of_row(row, to);
      for (const int64_t next = std::min(end, row - row % along + along); row < next; ++row) {
        turn(read, c, s, write, size / 2);
        read += step(from);
        c += step(cosines);
        s += step(sines);
        write += step(to);
      }
    }
  });
  return result;
}

void register_rotary_embedding() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("rotary_embedding(Tensor x, Tensor cos, Tensor sin, int? half) -> Tensor", rotary_embedding);
  });
}

// --- The pass --------------------------------------------------------------------------------------------------------

// The size of the last dimension, where it is known.
std::optional<int64_t> row_size(const jit::Value* x) {
  const auto sizes = x->type()->expectRef<c10::TensorType>().sizes();
  return sizes.size().value_or(0) > 0 ? sizes[*sizes.size() - 1] : std::nullopt;
}

// Whether a slice goes to the end of rows, of this size if that is known.
bool goes_to_end(const Found& found, const char* end, std::optional<int64_t> size) {
  const auto known = found.constants(found[end]);
  const auto least = static_cast<double>(size.value_or(std::numeric_limits<int64_t>::max()));
  return known && (known->isNone() || found.constants.number(found[end]) >= least);
}

// Whether the first slice is of the first half, and the other of the second; what is not known, a run looks at.
bool are_halves(const Found& found, std::optional<int64_t> size) {
  const jit::Value* const begin = found["other_begin"];
  const auto middle = found.constants.number(begin);
  const bool meet = found["end"] == begin || (middle && found.is("end", *middle));
  return meet && begin->type()->kind() == c10::TypeKind::IntType &&
         (!middle || !size || 2 * *middle == static_cast<double>(*size)) && found.is("begin", 0) &&
         found.is("step", 1) && goes_to_end(found, "other_end", size) && found.is("other_step", 1) &&
         found.is_last("join", "x");
}

// Whether the first slice is of the even elements, and the other of the odd ones.
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

// The operands of products and sums come in any order, as sort_operands cannot tell which of them is `x`.
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
  for (const Way& way : kWays) {
    for (const std::string& pattern : patterns_of(way)) {
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
