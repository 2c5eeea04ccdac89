#include "ops/spatial.h"

#include <algorithm>

namespace onnxtorch {

std::optional<size_t> spatial_rank(const Translator& t, const NodeView& n) {
  for (const char* name : {"kernel_shape", "strides", "dilations", "output_padding", "output_shape"}) {
    if (n.has_attribute(name)) return n.attr_ints(name).size();
  }
  if (n.has_attribute("pads")) return n.attr_ints("pads").size() / 2;
  for (size_t i = 0; i < std::min<size_t>(2, n.input_count()); ++i) {
    const auto sizes = t.known_sizes(n.input(i));
    if (!sizes) continue;
    if (sizes->size() < 2)
      n.fail("input " + std::to_string(i) + " must have two dimensions in front of the spatial ones");
    return sizes->size() - 2;
  }
  return {};
}

Value of_spatial_rank(Translator& t, const NodeView& n, const Value& x, size_t rank) {
  const auto sizes = t.known_sizes(x);
  if (!sizes) return t.call("of_spatial_rank", {x, static_cast<int64_t>(rank)}).as(x.type);
  if (sizes->size() == rank + 2) return x;
  n.fail("the input has " + std::to_string(sizes->size()) + " dimensions, not " + std::to_string(rank + 2) +
         ", of which " + std::to_string(rank) + " are spatial");
}

std::vector<int64_t> per_axis(const NodeView& n, std::string_view name, size_t rank, int64_t value) {
  if (!n.has_attribute(name)) return std::vector<int64_t>(rank, value);
  std::vector<int64_t> given = n.attr_ints(name);
  if (given.size() != rank) n.fail(std::string(name) + " must have " + std::to_string(rank) + " elements");
  return given;
}

Value window_pads(Translator& t, const NodeView& n, const Value& x, const Value& kernel,
                  const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations) {
  const size_t rank = strides.size();
  const std::string mode = n.has_attribute("auto_pad") ? n.attr_string("auto_pad") : "NOTSET";
  if (mode == "NOTSET" || mode.empty()) return t.scalar(per_axis(n, "pads", 2 * rank, 0));
  if (mode == "VALID") return t.scalar(std::vector<int64_t>(2 * rank, 0));
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER") n.fail("there is no auto_pad \"" + mode + "\"");
  // Windows that move by one element are padded alike whatever the sizes are.
  const auto lengths = t.known_ints(kernel);
  const bool by_one = lengths && std::ranges::all_of(strides, [](int64_t stride) { return stride == 1; });
  const Value sizes = by_one ? t.scalar(std::vector<int64_t>(lengths->size() + 2, 1)) : t.call("aten::size", {x});
  return t.call("same_pads", {sizes, kernel, strides, dilations, mode == "SAME_LOWER"});
}

std::optional<std::vector<int64_t>> symmetric(const Translator& t, const Value& pads) {
  const auto known = t.known_ints(pads);
  if (!known) return {};
  const auto half = known->begin() + static_cast<ptrdiff_t>(known->size() / 2);
  const std::vector<int64_t> begins(known->begin(), half);
  const bool usable =
      std::equal(half, known->end(), begins.begin()) && std::ranges::all_of(begins, [](int64_t p) { return p >= 0; });
  return usable ? std::optional(begins) : std::nullopt;
}

Value padded(Translator& t, const Value& x, const Value& pads, Arg fill) {
  const auto known = t.known_ints(pads);
  if (known && std::ranges::all_of(*known, [](int64_t p) { return p == 0; })) return x;
  return t.call("aten::constant_pad_nd", {x, t.call("inner_first", {pads}), std::move(fill)});
}

bool is_known_empty(const Translator& t, const Value& x) {
  const auto shape = t.known_shape(x);
  return shape && !shape->empty() && std::find(shape->begin() + 1, shape->end(), 0) != shape->end();
}

}  // namespace onnxtorch
