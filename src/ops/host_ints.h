// Helpers for shape arithmetic, which stays on the host: an int64 tensor of rank 0 as int, of rank 1 as int[].
#pragma once

#include "translate/translator.h"

namespace onnxtorch {

// Tells whether a value on the host is an int, not an int[].
inline bool is_host_scalar(const Translator& t, const Value& v) {
  const auto shape = t.known_shape(v);
  return shape && shape->empty();
}

inline Value int_list(Translator& t, const Values& items) {
  return items.empty() ? t.scalar(std::vector<int64_t>{}) : t.list(items);
}

// Gives as int[] what later versions take as input i, earlier ones as an attribute; absent where neither is given.
inline Value ints_or_attribute(Translator& t, const NodeView& n, size_t i, std::string_view name) {
  if (n.has(i)) return n.ints(i);
  return n.has_attribute(name) ? t.scalar(n.attr_ints(name)) : Value{};
}

}  // namespace onnxtorch
