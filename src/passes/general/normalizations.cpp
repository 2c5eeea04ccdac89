#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>

#include "graph/pattern.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

std::optional<std::vector<int64_t>> sizes_of(const jit::Value* value) {
  return value->type()->expectRef<c10::TensorType>().sizes().concrete_sizes();
}

// Tells whether the value is a constant tensor that holds nothing but this number.
bool is_filled(const Found& found, const char* name, double number) {
  const auto known = found.constants.tensor(found[name]);
  return known && known->defined() && at::eq(*known, number).all().item<bool>();
}

// Gives the size of the last dimension, if a mean is over nothing but that.
std::optional<int64_t> normalized_size(const Found& found, const char* dims, const char* keepdim) {
  const auto& type = found["x"]->type()->expectRef<c10::TensorType>();
  const auto over = found.constants.get<std::vector<int64_t>>(found[dims]);
  const auto rank = type.sizes().size();
  if (!rank || *rank == 0 || !over || over->size() != 1 || found.constants.get<bool>(found[keepdim]) != true) return {};
  const auto last = static_cast<int64_t>(*rank) - 1;
  if (over->front() != -1 && over->front() != last) return {};
  const auto size = type.sizes()[last];
  return size ? std::optional(static_cast<int64_t>(*size)) : std::nullopt;
}

// Finds (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + eps).
void find_plain_layer_norm(Program& program) {
  const std::string squares[] = {"aten::pow(%d, %two)", "aten::mul(%d, %d)"};
  for (const std::string& square : squares) {
    const bool is_power = square.find("two") != std::string::npos;
    const std::string pattern = "graph(%x, %dims, %keep, %none, %alpha, %dims2, %eps" +
                                std::string(is_power ? ", %two" : "") +
                                "):\n"
                                "  %m : Tensor = aten::mean(%x, %dims, %keep, %none)\n"
                                "  %d : Tensor = aten::sub(%x, %m, %alpha)\n"
                                "  %p : Tensor = " +
                                square +
                                "\n"
                                "  %v : Tensor = aten::mean(%p, %dims2, %keep, %none)\n"
                                "  %e : Tensor = aten::add(%v, %eps, %alpha)\n"
                                "  %s : Tensor = aten::sqrt(%e)\n"
                                "  %y : Tensor = aten::div(%d, %s)\n"
                                "  return (%y)";
    rewrite(program, pattern, [is_power](const Found& found, jit::Graph& graph) -> jit::Value* {
      const auto size = normalized_size(found, "dims", "keep"), same = normalized_size(found, "dims2", "keep");
      const auto eps = found.constants.number(found["eps"]);
      const bool fits = size && same && eps && found["none"]->mustBeNone() && found.is("alpha", 1) &&
                        found.is("eps", *eps) && (!is_power || found.is("two", 2));
      if (!fits) return nullptr;
      return graph.insert(c10::aten::layer_norm, {found["x"], std::vector<int64_t>{*size}}, {{"eps", *eps}});
    });
  }
}

// Finds x / sqrt(mean(x ** 2) + eps).
void find_plain_rms_norm(Program& program) {
  struct Part {
    const char *inputs, *steps;
  };
  const Part squares[] = {{", %two", "%p : Tensor = aten::pow(%x, %two)"}, {"", "%p : Tensor = aten::mul(%x, %x)"}};
  const Part quotients[] = {
      {"", "%i : Tensor = aten::reciprocal(%s)\n  %y : Tensor = aten::mul(%i, %x)"},
      {", %one", "%i : Tensor = aten::div(%one, %s)\n  %y : Tensor = aten::mul(%i, %x)"},
      {"", "%y : Tensor = aten::div(%x, %s)"},
  };
  for (const Part& square : squares) {
    for (const Part& quotient : quotients) {
      const std::string pattern = std::string("graph(%x, %dims, %keep, %none, %alpha, %eps") + square.inputs +
                                  quotient.inputs + "):\n  " + square.steps +
                                  "\n"
                                  "  %m : Tensor = aten::mean(%p, %dims, %keep, %none)\n"
                                  "  %e : Tensor = aten::add(%m, %eps, %alpha)\n"
                                  "  %s : Tensor = aten::sqrt(%e)\n  " +
                                  quotient.steps + "\n  return (%y)";
      rewrite(program, pattern, [&](const Found& found, jit::Graph& graph) -> jit::Value* {
        const auto size = normalized_size(found, "dims", "keep");
        const auto eps = found.constants.number(found["eps"]);
        const bool fits = size && eps && found["none"]->mustBeNone() && found.is("alpha", 1) && found.is("eps", *eps) &&
                          (!*square.inputs || found.is("two", 2)) && (!*quotient.inputs || found.is("one", 1));
        if (!fits) return nullptr;
        return graph.insert(c10::aten::rms_norm, {found["x"], std::vector<int64_t>{*size}}, {{"eps", *eps}});
      });
    }
  }
}

// Tells whether the value is a constant for each element that is normalized along with others.
bool fits_shape(const Found& found, const char* name) {
  const auto shape = found.constants.get<std::vector<int64_t>>(found["shape"]);
  const auto known = found.constants.tensor(found[name]);
  return shape && known && known->defined() && known->sizes() == at::IntArrayRef(*shape) &&
         known->scalar_type() == found["x"]->type()->expectRef<c10::TensorType>().scalarType();
}

// Puts a weight, and then a bias, into the normalization that they come after.
void find_affine(Program& program) {
  const auto with = [&](const char* inputs, const char* norm, const char* step, const char* taken, const auto& made) {
    const std::string pattern = std::string("graph(%x, %shape, %eps, %") + taken + inputs +
                                "):\n  %n : Tensor = " + norm + "\n  %y : Tensor = " + step + "\n  return (%y)";
    rewrite(program, pattern, [&](const Found& found, jit::Graph& graph) -> jit::Value* {
      return fits_shape(found, taken) ? made(found, graph) : nullptr;
    });
  };
  with(", %none", "aten::rms_norm(%x, %shape, %none, %eps)", "aten::mul(%n, %w)", "w",
       [](const Found& found, jit::Graph& graph) -> jit::Value* {
         if (!found["none"]->mustBeNone()) return nullptr;
         return graph.insert(c10::aten::rms_norm, {found["x"], found["shape"], found["w"], found["eps"]});
       });
  with(", %none, %no_bias, %cudnn", "aten::layer_norm(%x, %shape, %none, %no_bias, %eps, %cudnn)", "aten::mul(%n, %w)",
       "w", [](const Found& found, jit::Graph& graph) -> jit::Value* {
         if (!found["none"]->mustBeNone() || !found["no_bias"]->mustBeNone()) return nullptr;
         return graph.insert(c10::aten::layer_norm,
                             {found["x"], found["shape"], found["w"], found["no_bias"], found["eps"], found["cudnn"]});
       });
  with(", %w, %none, %cudnn, %alpha", "aten::layer_norm(%x, %shape, %w, %none, %eps, %cudnn)",
       "aten::add(%n, %b, %alpha)", "b", [](const Found& found, jit::Graph& graph) -> jit::Value* {
         if (!found["none"]->mustBeNone() || !found.is("alpha", 1)) return nullptr;
         return graph.insert(c10::aten::layer_norm,
                             {found["x"], found["shape"], found["w"], found["b"], found["eps"], found["cudnn"]});
       });
}

// Finds a GroupNorm that is an instance normalization of the groups, each laid out as one row.
void find_group_norm(Program& program) {
  const char* const pattern = R"(graph(%x, %rows, %w, %b, %mean, %var, %own, %momentum, %eps, %cudnn, %sizes):
    %r : Tensor = aten::reshape(%x, %rows)
    %n : Tensor = aten::instance_norm(%r, %w, %b, %mean, %var, %own, %momentum, %eps, %cudnn)
    %y : Tensor = aten::reshape(%n, %sizes)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const auto sizes = sizes_of(found["x"]), rows = sizes_of(found["r"]), result = sizes_of(found["y"]);
    const bool fits = sizes && rows && sizes->size() >= 3 && rows->size() == 3 && result == sizes &&
                      rows->at(0) == sizes->at(0) && rows->at(1) > 0 && sizes->at(1) % rows->at(1) == 0 &&
                      is_filled(found, "w", 1) && is_filled(found, "b", 0) && found["mean"]->mustBeNone() &&
                      found["var"]->mustBeNone();
    if (!fits) return nullptr;
    return graph.insert(c10::Symbol::aten("group_norm"), {found["x"], rows->at(1)}, {{"eps", found["eps"]}});
  });
}

}  // namespace

void find_normalizations(Program& program) {
  sort_operands(program);
  find_plain_layer_norm(program);
  find_plain_rms_norm(program);
  find_affine(program);
  find_group_norm(program);
}

}  // namespace onnxtorch
