#include "import/node_order.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Names = std::unordered_set<std::string_view>;

template <typename Visit>
void for_each_subgraph(const onnx::NodeProto& node, const Visit& visit) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.g());
    for (const auto& graph : attribute.graphs()) visit(graph);
  }
}

// Gives the names of the values that are there before the first node.
Names given_to(const onnx::GraphProto& graph) {
  Names names;
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) names.insert(tensor.values().name());
  return names;
}

void add_reads(const onnx::NodeProto& node, Names& names);

// Adds the names of the values that a subgraph takes from around it.
void add_reads(const onnx::GraphProto& graph, Names& names) {
  Names reads, own = given_to(graph);
  for (const auto& node : graph.node()) {
    own.insert(node.output().begin(), node.output().end());
    add_reads(node, reads);
  }
  for (const auto& output : graph.output()) reads.insert(output.name());
  std::ranges::copy_if(reads, std::inserter(names, names.end()), [&](auto name) { return !own.contains(name); });
}

void add_reads(const onnx::NodeProto& node, Names& names) {
  names.insert(node.input().begin(), node.input().end());
  for_each_subgraph(node, [&](const onnx::GraphProto& graph) { add_reads(graph, names); });
}

// Gives the indices of the nodes that each node must come behind.
std::vector<std::vector<int>> sources_of(const Nodes& nodes, const Names& given) {
  std::unordered_map<std::string_view, int> definers;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const auto& output : nodes[i].output()) {
      if (!output.empty() && !given.contains(output)) definers.emplace(output, i);
    }
  }
  std::vector<std::vector<int>> sources(nodes.size());
  for (int i = 0; i < nodes.size(); ++i) {
    Names reads;
    add_reads(nodes[i], reads);
    for (const std::string_view name : reads) {
      if (const auto found = definers.find(name); found != definers.end()) sources[i].push_back(found->second);
    }
  }
  return sources;
}

bool is_in_order(const std::vector<std::vector<int>>& sources) {
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) {
    if (std::ranges::any_of(sources[i], [i](int source) { return source >= i; })) return false;
  }
  return true;
}

// Gives an order of nodes. Of those that may come next the first is always taken; nodes that wait for one another are
// left out.
std::vector<int> order_of(const std::vector<std::vector<int>>& sources) {
  std::vector<std::vector<int>> readers(sources.size());
  std::vector<size_t> awaited(sources.size());
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) {
    awaited[i] = sources[i].size();
    for (const int source : sources[i]) readers[source].push_back(i);
    if (awaited[i] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const int reader : readers[order.back()]) {
      if (--awaited[reader] == 0) ready.push(reader);
    }
  }
  return order;
}

void order(onnx::GraphProto& graph);

void order(Nodes& nodes, const Names& given) {
  for (auto& node : nodes) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) order(*attribute.mutable_g());
      for (auto& graph : *attribute.mutable_graphs()) order(graph);
    }
  }
  const auto sources = sources_of(nodes, given);
  if (is_in_order(sources)) return;
  Nodes ordered;
  for (const int i : order_of(sources)) *ordered.Add() = std::move(nodes[i]);
  if (ordered.size() < nodes.size()) throw InvalidModelError("there are nodes that wait for one another's outputs");
  nodes.Swap(&ordered);
}

void order(onnx::GraphProto& graph) { order(*graph.mutable_node(), given_to(graph)); }

}  // namespace

void order_nodes(onnx::ModelProto& model) {
  if (model.has_graph()) order(*model.mutable_graph());
  for (auto& function : *model.mutable_functions())
    order(*function.mutable_node(), Names(function.input().begin(), function.input().end()));
}

}  // namespace onnxtorch
