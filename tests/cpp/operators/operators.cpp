// A library of translators as users write them.
#include <ATen/ATen.h>
#include <onnx_torch/translator.h>
#include <torch/library.h>

#include <stdexcept>

using namespace onnxtorch::translator;
using onnxtorch::ElementType;

namespace {

at::Tensor add_index(const at::Tensor& x, int64_t dim) { return x + at::arange(x.size(dim), x.options()); }

// Translates Scaled(x, bias?): x * factor + bias.
Values scaled(Graph& graph, const Node& node) {
  if (node.input_count() > 2) node.fail("takes one or two inputs");
  const double factor = node.has_attribute("factor") ? node.attr_float("factor") : 2.0;
  const Value product = graph.call("aten::mul", {node.input(0), factor});
  return {node.has(1) ? graph.call("aten::add", {product, node.input(1)}) : product};
}

Values scaled_3(Graph& graph, const Node& node) { return {graph.call("aten::mul", {node.input(0), node.number(1)})}; }

// Translates Parts(x): its largest values along the attribute "axis", where they are, and the number of its elements.
Values parts(Graph& graph, const Node& node) {
  Values results = graph.call_all("aten::max", {node.input(0), kw("dim", node.attr_int("axis")), kw("keepdim", true)});
  if (node.wants(2)) results.push_back(graph.call("aten::numel", {node.input(0)}));
  return results;
}

// Translates Table(x): x looked up in a constant, by an operator of this library's own.
Values table(Graph& graph, const Node& node) {
  const auto shape = graph.known_shape(node.input(0));
  if (shape && shape->size() != 1) node.unsupported("only vectors");
  const Value constant = graph.constant(at::tensor({10.0F, 20.0F, 30.0F}));
  const Value found = graph.call("aten::index_select", {constant, 0, node.input(0)});
  return {graph.call("onnx_torch_test::add_index", {found, kw("dim", 0)})};
}

Values describe(Graph& graph, const Node& node) {
  const auto ints = node.attr_ints("ints");
  const auto floats = node.attr_floats("floats");
  if (node.attr_string("text") != "text" || node.attr_strings("texts").size() != 2 ||
      node.label().op_type != "Describe") {
    throw std::runtime_error("attributes came wrong");
  }
  const Value sum = graph.call("aten::add", {node.attr_tensor("tensor"), floats.at(0)});
  const Value shape =
      graph.call("aten::new_zeros", {sum, ints, kw("dtype", ElementType::Uint8), kw("device", graph.device())});
  return {sum, shape.as(ElementType::Uint4), graph.call("aten::reshape", {node.input(0), node.ints(1)})};
}

// Translates Fold(state, x; body): the body gives the next state of a state and a row of x. The results are the last
// state, and all of them.
Values fold(Graph& graph, const Node& node) {
  if (node.subgraph_output_count("body") != 1) node.fail("its body gives one output");
  const Value x = node.input(1);
  const Value count = graph.call("aten::size", {x, 0});
  const Values folded =
      graph.loop(count, none, {node.input(0), Values{}}, [&](const Value& iteration, const Values& carried) {
        const Value row = graph.call("aten::select", {x, 0, iteration}).as(x.element());
        const Value state = node.subgraph("body", {carried[0], row})[0];
        return Graph::Step{{}, {state, graph.call("aten::append", {carried[1], state})}};
      });
  return {folded[0], graph.call("aten::stack", {folded[1], 0}).as(folded[0].element())};
}

// Translates Halvings(x, limit): how often x is halved until it is below the limit.
Values halvings(Graph& graph, const Node& node) {
  const auto is_high = [&](const Value& x) { return graph.call("aten::ge", {x, node.input(1)}); };
  const Value one = graph.constant(at::scalar_tensor(1, at::kLong));
  const Values last = graph.loop(none, is_high(node.input(0)), {node.input(0), 0},
                                 [&](const Value&, const Values& carried) -> Graph::Step {
                                   const Value half = graph.call("aten::div", {carried[0], 2.0});
                                   return {is_high(half), {half, graph.call("aten::add", {carried[1], one})}};
                                 });
  return {last[1]};
}

// Translates Choose(condition, x; body): the body of x, or x.
Values choose(Graph& graph, const Node& node) {
  return graph.branch(
      node.input(0), [&] { return node.subgraph("body", {node.input(1)}); }, [&] { return Values{node.input(1)}; });
}

std::vector<std::string> append_to_each(std::vector<std::string> texts, const std::string& suffix) {
  for (std::string& text : texts) text += suffix;
  return texts;
}

// Translates Append(x): each string with the attribute "suffix" behind it.
Values append(Graph& graph, const Node& node) {
  const Value x = node.input(0);
  if (x.element() != ElementType::String) node.fail("takes strings");
  const Value texts = graph.call("onnx_torch_test::append_to_each", {graph.texts(x), node.attr_string("suffix")});
  return {graph.strings(texts, graph.call("aten::size", {x}))};
}

// Translates Words(x): the words that x numbers, of the attribute "words", and whether each is the one of the attribute
// "tensor".
Values words(Graph& graph, const Node& node) {
  const auto words = node.attr_strings("words");
  const Value all = graph.strings(words, std::vector<int64_t>{static_cast<int64_t>(words.size())});
  const Value found = graph.call("aten::index", {all, Values{node.input(0)}}).as(ElementType::String);
  return {found, graph.call("aten::eq", {found, node.attr_tensor("tensor")})};
}

Values unknown(Graph& graph, const Node& node) { return {graph.call("nobody::knows", {node.input(0)})}; }
Values unqualified(Graph& graph, const Node& node) { return {graph.call("relu", {node.input(0)})}; }

}  // namespace

TORCH_LIBRARY(onnx_torch_test, m) {
  m.def("add_index(Tensor x, int dim) -> Tensor", add_index);
  m.def("append_to_each(str[] texts, str suffix) -> str[]", append_to_each);
}

ONNX_TORCH_OPERATORS(operators) {
  operators.add("test.cpp", "Scaled", 1, scaled);
  operators.add("test.cpp", "Scaled", 3, scaled_3);
  operators.add("test.cpp", "Parts", 1, parts);
  operators.add("test.cpp", "Table", 1, table);
  operators.add("test.cpp", "Describe", 1, describe);
  operators.add("test.cpp", "Fold", 1, fold);
  operators.add("test.cpp", "Halvings", 1, halvings);
  operators.add("test.cpp", "Choose", 1, choose);
  operators.add("test.cpp", "Append", 1, append);
  operators.add("test.cpp", "Words", 1, words);
  operators.add("test.cpp", "Unknown", 1, unknown);
  operators.add("test.cpp", "Unqualified", 1, unqualified);
}
