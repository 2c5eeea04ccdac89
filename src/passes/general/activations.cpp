#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <numbers>

#include "graph/pattern.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the pattern of x * gate(x).
std::string gated(const std::string& gate) {
  return "graph(%x):\n  %gate : Tensor = aten::" + gate + "(%x)\n  %y : Tensor = aten::mul(%gate, %x)\n  return (%y)";
}

// Gives the patterns of half of x times a value `s` that `steps` compute from x: either product may be taken first.
std::vector<std::string> halved(const std::string& inputs, const std::string& steps) {
  const std::string head = "graph(" + inputs + ", %half):\n" + steps;
  return {
      head + "  %p : Tensor = aten::mul(%s, %x)\n  %y : Tensor = aten::mul(%p, %half)\n  return (%y)",
      head + "  %h : Tensor = aten::mul(%x, %half)\n  %y : Tensor = aten::mul(%s, %h)\n  return (%y)",
  };
}

jit::Value* gelu(const Found& found, jit::Graph& graph, const char* approximate) {
  return graph.insert(c10::aten::gelu, {found["x"]}, {{"approximate", approximate}});
}

// Finds x / 2 * (1 + erf(x / sqrt(2))).
void find_gelu(Program& program) {
  const struct {
    const char* operation;
    double number;
  } kScalings[] = {{"div", std::numbers::sqrt2}, {"mul", 1 / std::numbers::sqrt2}};
  for (const auto& [operation, number] : kScalings) {
    const std::string steps = std::string("  %r : Tensor = aten::") + operation +
                              "(%x, %root)\n"
                              "  %e : Tensor = aten::erf(%r)\n"
                              "  %s : Tensor = aten::add(%e, %one, %one_int)\n";
    for (const std::string& pattern : halved("%x, %root, %one, %one_int", steps)) {
      rewrite(program, pattern, [number = number](const Found& found, jit::Graph& graph) -> jit::Value* {
        const bool fits =
            found.is("root", number) && found.is("one", 1) && found.is("one_int", 1) && found.is("half", 0.5);
        return fits ? gelu(found, graph, "none") : nullptr;
      });
    }
  }
}

// Finds x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))).
void find_gelu_tanh(Program& program) {
  const std::string cubes[] = {
      "  %cube : Tensor = aten::pow(%x, %three)\n",
      "  %square : Tensor = aten::mul(%x, %x)\n  %cube : Tensor = aten::mul(%square, %x)\n",
  };
  for (const std::string& cube : cubes) {
    const bool power = cube.find("pow") != std::string::npos;
    const std::string steps = cube +
                              "  %scaled : Tensor = aten::mul(%cube, %c)\n"
                              "  %sum : Tensor = aten::add(%scaled, %x, %one_int)\n"
                              "  %inner : Tensor = aten::mul(%sum, %root)\n"
                              "  %t : Tensor = aten::tanh(%inner)\n"
                              "  %s : Tensor = aten::add(%t, %one, %one_int)\n";
    const std::string inputs = std::string("%x, %c, %root, %one, %one_int") + (power ? ", %three" : "");
    for (const std::string& pattern : halved(inputs, steps)) {
      rewrite(program, pattern, [power](const Found& found, jit::Graph& graph) -> jit::Value* {
        const bool fits = found.is("c", 0.044715) && found.is("root", std::sqrt(2 / std::numbers::pi)) &&
                          found.is("one", 1) && found.is("one_int", 1) && found.is("half", 0.5) &&
                          (!power || found.is("three", 3));
        return fits ? gelu(found, graph, "tanh") : nullptr;
      });
    }
  }
}

}  // namespace

void find_activations(Program& program) {
  sort_operands(program);
  const auto by = [](const char* function) {
    return [symbol = c10::Symbol::aten(function)](const Found& found, jit::Graph& graph) {
      return graph.insert(symbol, {found["x"]});
    };
  };
  rewrite(program, gated("sigmoid"), by("silu"));
  rewrite(program, gated("hardsigmoid"), by("hardswish"));
  find_gelu(program);
  find_gelu_tanh(program);
}

}  // namespace onnxtorch
