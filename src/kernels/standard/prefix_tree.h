// A set of texts with a number each, for finding those that a text begins with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onnxtorch {

// A radix tree. It refers to the texts that it is made of, which must outlive it.
class PrefixTree {
 public:
  using Texts = std::vector<std::pair<std::string_view, int64_t>>;

  // The texts must not be empty, and each differ.
  explicit PrefixTree(Texts texts);

  // Calls function(size, number) for each text of the set that this one begins with, the shortest first.
  template <typename Function>
  void for_each_prefix(std::string_view text, const Function& function) const {
    size_t size = 0;
    for (const Node* node = &nodes_[0]; node;) {
      if (!text.substr(size).starts_with(node->edge)) return;
      size += node->edge.size();
      if (node->number != kNone) function(size, node->number);
      if (size == text.size()) return;
      node = child(*node, text[size++]);
    }
  }

  // Gives the size of the longest text of the set that this one begins with; 0 where it begins with none.
  size_t longest_prefix(std::string_view text) const {
    size_t longest = 0;
    for_each_prefix(text, [&](size_t size, int64_t) { longest = size; });
    return longest;
  }

 private:
  static constexpr int64_t kNone = -1;

  // What follows the byte that leads to the node, the number of the text that ends there, and its children.
  struct Node {
    std::string_view edge;
    int64_t number = kNone;
    size_t first_child = 0, children = 0;
  };

  const Node* child(const Node& of, char byte) const {
    const size_t found = std::string_view(bytes_).substr(of.first_child, of.children).find(byte);
    return found == std::string_view::npos ? nullptr : &nodes_[of.first_child + found];
  }

  std::vector<Node> nodes_;
  std::string bytes_;  // that lead to the nodes; the first is none's
};

}  // namespace onnxtorch
