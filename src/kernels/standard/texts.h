// The parts that the kernels on strings share. A string tensor is an int64 tensor of ids into the pool; see
// string_pool.h.
#pragma once

#include <ATen/ATen.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/parallel.h"
#include "base/string_pool.h"

namespace onnxtorch {

using Pool = c10::intrusive_ptr<StringPool>;

inline at::Tensor on_host(const at::Tensor& x) { return x.cpu().contiguous(); }

// Gives the tensor of the ids of text_of(element), of the shape of `x`.
template <typename T, typename TextOf>
at::Tensor intern_each(StringPool& pool, const at::Tensor& x, TextOf text_of) {
  const at::Tensor in = on_host(x);
  at::Tensor out = at::empty(in.sizes(), at::kLong);
  const T* from = in.const_data_ptr<T>();
  std::transform(from, from + in.numel(), out.mutable_data_ptr<int64_t>(),
                 [&](const T& element) { return pool.intern(text_of(element)); });
  return out.to(x.device());
}

// Gives the tensor of value_of(text) for each string of `ids`.
template <typename T, typename ValueOf>
at::Tensor map_texts(const StringPool& pool, const at::Tensor& ids, ValueOf value_of) {
  const at::Tensor in = on_host(ids);
  at::Tensor out = at::empty(in.sizes(), c10::CppTypeToScalarType<T>::value);
  const int64_t* from = in.const_data_ptr<int64_t>();
  T* to = out.mutable_data_ptr<T>();
  constexpr int64_t kCost = 32;  // of a text
  parallel_for(in.numel(), kCost, [&](int64_t begin, int64_t end) {
    std::transform(from + begin, from + end, to + begin, [&](int64_t id) -> T { return value_of(pool.at(id)); });
  });
  return out.to(ids.device());
}

// Takes the code point at the start off `text`, and gives it.
inline char32_t take_code_point(std::string_view& text) {
  utf8proc_int32_t code = 0;
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &code);
  TORCH_CHECK(size > 0, "a string is not valid UTF-8");
  text.remove_prefix(size);
  return code;
}

// Adds a code point to a text, as UTF-8.
inline void append(std::string& text, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), size);
}

}  // namespace onnxtorch
