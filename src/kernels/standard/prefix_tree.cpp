#include "kernels/standard/prefix_tree.h"

#include <algorithm>
#include <span>

namespace onnxtorch {

// Makes the nodes breadth first, so that a node's children are neighbours. Each stands for a range of the sorted texts,
// which have so many bytes in common with it.
PrefixTree::PrefixTree(Texts texts) {
  struct Range {
    size_t begin, end, depth;
  };
  std::ranges::sort(texts);
  std::vector<Range> ranges{{0, texts.size(), 0}};
  bytes_.push_back('\0');
  for (size_t i = 0; i < ranges.size(); ++i) {
    auto [begin, end, depth] = ranges[i];
    Node node;
    node.first_child = ranges.size();
    if (begin < end) {
      const std::string_view first = texts[begin].first.substr(depth), last = texts[end - 1].first.substr(depth);
      node.edge = first.substr(0, std::ranges::mismatch(first, last).in1 - first.begin());
      depth += node.edge.size();
      if (texts[begin].first.size() == depth) node.number = texts[begin++].second;
    }
    while (begin < end) {
      const char byte = texts[begin].first[depth];
      const std::span rest = std::span(texts).subspan(begin, end - begin);
      const auto others =
          std::ranges::partition_point(rest, [&](const auto& text) { return text.first[depth] == byte; });
      const size_t next = begin + std::distance(rest.begin(), others);
      ranges.push_back({begin, next, depth + 1});
      bytes_.push_back(byte);
      begin = next;
    }
    node.children = ranges.size() - node.first_child;
    nodes_.push_back(node);
  }
}

}  // namespace onnxtorch
