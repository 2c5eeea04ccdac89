// Operators on strings: concatenation, splitting, matching, normalising, and casts from and to numbers.
#include <ATen/ATen.h>
#include <re2/re2.h>
#include <torch/library.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "base/string_pool.h"
#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

using at::Tensor;
// ---- StringConcat -------------------------------------------------------------------------------------------------

Tensor string_concat(const Pool& pool, const Tensor& x, const Tensor& y) {
  const auto pair = at::broadcast_tensors({on_host(x), on_host(y)});
  const Tensor left = pair[0].contiguous();
  const Tensor right = pair[1].contiguous();
  Tensor out = at::empty(left.sizes(), at::kLong);
  std::transform(left.const_data_ptr<int64_t>(), left.const_data_ptr<int64_t>() + left.numel(),
                 right.const_data_ptr<int64_t>(), out.mutable_data_ptr<int64_t>(),
                 [&](int64_t a, int64_t b) { return pool->intern(pool->at(a) + pool->at(b)); });
  return out.to(x.device());
}

// ---- White space -----------------------------------------------------------------------------------------------------

// Tells whether Python's str.isspace is true.
bool is_space(char32_t code) {
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  return property->category == UTF8PROC_CATEGORY_ZS || property->bidi_class == UTF8PROC_BIDI_CLASS_WS ||
         property->bidi_class == UTF8PROC_BIDI_CLASS_B || property->bidi_class == UTF8PROC_BIDI_CLASS_S;
}

// ---- StringSplit --------------------------------------------------------------------------------------------------

std::string_view without_leading_space(std::string_view text) {
  while (!text.empty()) {
    std::string_view rest = text;
    if (!is_space(take_code_point(rest))) break;
    text = rest;
  }
  return text;
}

std::string_view without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (std::string_view rest = text; !rest.empty();) {
    if (!is_space(take_code_point(rest))) end = text.size() - rest.size();
  }
  return text.substr(0, end);
}

// Takes the first word off `text`, and gives it.
std::string_view take_word(std::string_view& text) {
  const std::string_view start = text;
  size_t size = 0;
  while (!text.empty()) {
    std::string_view rest = text;
    if (is_space(take_code_point(rest))) break;
    text = rest;
    size = start.size() - text.size();
  }
  return start.substr(0, size);
}

// Adds the words of `text`; after `max_splits` of them, the rest as it stands.
void split_at_space(std::string_view text, int64_t max_splits, std::vector<std::string_view>& parts) {
  text = without_trailing_space(without_leading_space(text));
  for (int64_t splits = 0; !text.empty(); text = without_leading_space(text), ++splits) {
    if (splits == max_splits) {
      parts.push_back(text);
      return;
    }
    parts.push_back(take_word(text));
  }
}

void split_at(std::string_view delimiter, std::string_view text, int64_t max_splits,
              std::vector<std::string_view>& parts) {
  for (int64_t splits = 0; splits != max_splits; ++splits) {
    const size_t found = text.find(delimiter);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + delimiter.size());
  }
  parts.push_back(text);
}

std::tuple<Tensor, Tensor> string_split(const Pool& pool, const Tensor& x, std::optional<std::string_view> delimiter,
                                        std::optional<int64_t> maxsplit) {
  const Tensor in = on_host(x);
  const int64_t* ids = in.const_data_ptr<int64_t>();
  const int64_t max_splits = maxsplit.value_or(-1);
  const std::string_view separator = delimiter.value_or("");

  Tensor counts = at::empty(in.sizes(), at::kLong);
  int64_t* count = counts.mutable_data_ptr<int64_t>();
  std::vector<std::string_view> parts;
  for (int64_t i = 0; i < in.numel(); ++i) {
    const auto before = parts.size();
    if (separator.empty()) {
      split_at_space(pool->at(ids[i]), max_splits, parts);
    } else {
      split_at(separator, pool->at(ids[i]), max_splits, parts);
    }
    count[i] = static_cast<int64_t>(parts.size() - before);
  }

  const int64_t width = in.numel() == 0 ? 0 : *std::max_element(count, count + in.numel());
  std::vector<int64_t> shape = in.sizes().vec();
  shape.push_back(width);
  Tensor substrings = at::full(shape, pool->intern(""), at::kLong);
  int64_t* row = substrings.mutable_data_ptr<int64_t>();
  const std::string_view* part = parts.data();
  for (int64_t i = 0; i < in.numel(); ++i, row += width) {
    // Interning never moves a string of the pool, so the parts stay valid.
    for (int64_t k = 0; k < count[i]; ++k) row[k] = pool->intern(*part++);
  }
  return {substrings.to(x.device()), counts.to(x.device())};
}

// ---- RegexFullMatch -----------------------------------------------------------------------------------------------

Tensor regex_full_match(const Pool& pool, const Tensor& x, std::string_view pattern) {
  const RE2 regex(re2::StringPiece(pattern.data(), pattern.size()), RE2::Quiet);
  TORCH_CHECK_VALUE(regex.ok(), "RegexFullMatch: '", pattern, "' is not a valid RE2 pattern: ", regex.error());
  return map_texts<bool>(*pool, x, [&](const std::string& text) { return RE2::FullMatch(text, regex); });
}

// ---- StringNormalizer ---------------------------------------------------------------------------------------------

// Tells whether the locale's language has a dotless i: Turkish and Azeri tell the dotted from the dotless i.
bool has_dotless_i(std::string_view locale) {
  const std::string_view language = locale.substr(0, locale.find_first_of("_-."));
  return language == "tr" || language == "az";
}

void append_lower(std::string& text, char32_t code, bool dotless_i) {
  if (code == U'\u0130') {
    append(text, U'i');
    if (!dotless_i) append(text, U'\u0307');
  } else if (dotless_i && code == U'I') {
    append(text, U'\u0131');
  } else {
    append(text, utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
  }
}

void append_upper(std::string& text, char32_t code, bool dotless_i) {
  if (dotless_i && code == U'i') return append(text, U'\u0130');
  // A character whose capital is several ("ß", "ﬁ") is several small ones when case-folded.
  const auto small = static_cast<utf8proc_int32_t>(code);
  std::array<utf8proc_int32_t, 8> folded;
  int last_boundclass = 0;
  const auto size =
      utf8proc_category(small) == UTF8PROC_CATEGORY_LU
          ? 1
          : utf8proc_decompose_char(small, folded.data(), folded.size(), UTF8PROC_CASEFOLD, &last_boundclass);
  if (size <= 1) return append(text, utf8proc_toupper(small));
  for (utf8proc_ssize_t i = 0; i < size; ++i) append(text, utf8proc_toupper(folded[i]));
}

template <typename Append>
std::string change_case(std::string_view text, bool dotless_i, Append append_changed) {
  std::string changed;
  changed.reserve(text.size());
  while (!text.empty()) append_changed(changed, take_code_point(text), dotless_i);
  return changed;
}

// Gives a text that is equal for strings that differ in case only.
std::string fold_case(std::string_view text, bool dotless_i) {
  const std::string lower = change_case(text, dotless_i, append_lower);
  utf8proc_uint8_t* folded = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(lower.data()),
                                 static_cast<utf8proc_ssize_t>(lower.size()), &folded, UTF8PROC_CASEFOLD);
  TORCH_CHECK(size >= 0, "a string is not valid UTF-8");
  std::string key(reinterpret_cast<const char*>(folded), size);
  std::free(folded);
  return key;
}

Tensor string_normalizer(const Pool& pool, const Tensor& x, std::string_view case_change_action, bool is_case_sensitive,
                         const c10::List<std::string>& stopwords, std::string_view locale) {
  TORCH_CHECK_VALUE(x.dim() == 1 || (x.dim() == 2 && x.size(0) == 1),
                    "StringNormalizer takes a tensor of shape [C] or [1, C], not ", x.sizes());
  TORCH_CHECK_VALUE(case_change_action == "NONE" || case_change_action == "LOWER" || case_change_action == "UPPER",
                    "StringNormalizer: case_change_action is NONE, LOWER or UPPER, not '", case_change_action, "'");
  const bool dotless_i = has_dotless_i(locale);
  const auto key_of = [&](const std::string& text) { return is_case_sensitive ? text : fold_case(text, dotless_i); };
  const auto changed = [&](const std::string& text) {
    if (case_change_action == "LOWER") return change_case(text, dotless_i, append_lower);
    if (case_change_action == "UPPER") return change_case(text, dotless_i, append_upper);
    return text;
  };

  std::unordered_set<std::string> stop_keys;
  for (const auto& word : stopwords) stop_keys.insert(key_of(word));

  const Tensor in = on_host(x);
  const int64_t* ids = in.const_data_ptr<int64_t>();
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < in.numel(); ++i) {
    const std::string& text = pool->at(ids[i]);
    if (stop_keys.empty() || !stop_keys.contains(key_of(text))) kept.push_back(pool->intern(changed(text)));
  }
  if (kept.empty()) kept.push_back(pool->intern(""));
  const Tensor out = at::tensor(kept, at::kLong);
  return (x.dim() == 2 ? out.unsqueeze(0) : out).to(x.device());
}

// ---- Cast to string -----------------------------------------------------------------------------------------------

// Writes "-3.1415926e+02" as "-314.15926"; very large and very small numbers stay in the scientific notation.
std::string plain_notation(std::string_view scientific) {
  const size_t e = scientific.find('e');
  int exponent = 0;
  const size_t exponent_begin = e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(scientific.data() + exponent_begin, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);

  const bool negative = scientific.front() == '-';
  std::string digits(scientific.substr(negative, e - negative));
  std::erase(digits, '.');
  const auto before_point = static_cast<size_t>(std::max(exponent + 1, 0));
  if (exponent < 0) digits.insert(0, static_cast<size_t>(-exponent - 1), '0');
  if (digits.size() < before_point) digits.append(before_point - digits.size(), '0');
  const std::string whole = before_point == 0 ? "0" : digits.substr(0, before_point);
  const std::string fraction = before_point == digits.size() ? "0" : digits.substr(before_point);
  return (negative ? "-" : "") + whole + "." + fraction;
}

// Gives the shortest scientific notation that reads back as the same T.
template <typename T>
std::string_view shortest_scientific(T value, std::array<char, 64>& buffer) {
  char* const begin = buffer.data();
  char* const limit = begin + buffer.size();
  constexpr auto format = std::chars_format::scientific;
  if constexpr (std::is_floating_point_v<T>) {
    return {begin, std::to_chars(begin, limit, value, format).ptr};
  } else {
    const auto wide = static_cast<float>(value);
    for (int fraction_digits = 0;; ++fraction_digits) {
      const char* end = std::to_chars(begin, limit, wide, format, fraction_digits).ptr;
      float back = 0;
      std::from_chars(begin, end, back, format);
      if (static_cast<float>(static_cast<T>(back)) == wide) return {begin, end};
    }
  }
}

template <typename T>
std::string floating_text(T value) {
  const auto wide = static_cast<double>(value);
  if (std::isnan(wide)) return "NaN";
  if (std::isinf(wide)) return wide > 0 ? "INF" : "-INF";
  std::array<char, 64> buffer;
  return plain_notation(shortest_scientific(value, buffer));
}

Tensor number_to_string(const Pool& pool, const Tensor& x, bool is_uint64) {
  if (x.is_floating_point() && x.element_size() == 1) return number_to_string(pool, x.to(at::kFloat), false);
  if (is_uint64) {
    TORCH_CHECK(x.scalar_type() == at::kLong, "a uint64 tensor is stored as int64, not ", x.scalar_type());
    return intern_each<int64_t>(*pool, x, [](int64_t bits) { return std::to_string(static_cast<uint64_t>(bits)); });
  }
  if (x.scalar_type() == at::kBool) {
    return intern_each<bool>(*pool, x, [](bool value) { return value ? "True" : "False"; });
  }
  if (x.is_floating_point()) {
    return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "number_to_string", [&] {
      return intern_each<scalar_t>(*pool, x, [](scalar_t value) { return floating_text(value); });
    });
  }
  return AT_DISPATCH_INTEGRAL_TYPES(x.scalar_type(), "number_to_string", [&] {
    return intern_each<scalar_t>(*pool, x, [](scalar_t value) { return std::to_string(value); });
  });
}

// ---- Cast from string ---------------------------------------------------------------------------------------------

// Takes off the white space around a numeral, and a plus sign, which std::from_chars does not know.
std::string_view numeral(std::string_view text) {
  constexpr std::string_view space = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(space), text.size()));
  text = text.substr(0, text.find_last_not_of(space) + 1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// Tells of a decimal numeral that is out of a floating-point type's range whether it is nearer to zero, and not beyond
// the largest.
bool is_tiny(std::string_view text) {
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  int64_t exponent = 0;
  if (e < text.size()) {
    const std::string_view power = numeral(text.substr(e + 1));
    const auto read = std::from_chars(power.data(), power.data() + power.size(), exponent);
    if (read.ec == std::errc::result_out_of_range) return power.front() == '-';
  }
  const std::string_view mantissa = text.substr(0, e);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const size_t first = mantissa.find_first_of("123456789");
  return exponent < static_cast<int64_t>(first) - static_cast<int64_t>(point);  // the exponent may be any int64
}

template <typename T>
bool read_floating(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec == std::errc::result_out_of_range) {
    value =
        std::copysign(is_tiny(text) ? T(0) : std::numeric_limits<T>::infinity(), text.front() == '-' ? T(-1) : T(1));
  }
  return read.ec != std::errc::invalid_argument && read.ptr == end;
}

// Reads an int64. A number that only a uint64 can hold is read as its bits; a fraction is cut off.
bool read_integer(std::string_view text, int64_t& value) {
  const auto whole = [&](auto& number) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    return read.ec == std::errc() && read.ptr == end;
  };
  if (whole(value)) return true;
  if (uint64_t bits = 0; whole(bits)) {
    value = static_cast<int64_t>(bits);
    return true;
  }
  double number = 0;
  if (!read_floating(text, number) || !(std::abs(number) < 0x1p63)) return false;
  value = static_cast<int64_t>(number);
  return true;
}

bool read_bool(std::string_view text, bool& value) {
  if (text == "True" || text == "true") return value = true;
  double number = 0;
  const bool is_false = text == "False" || text == "false";
  if (!is_false && !read_floating(text, number)) return false;
  value = number != 0;
  return true;
}

template <typename T, typename Read>
Tensor parse_each(const StringPool& pool, const Tensor& x, const char* type, Read read) {
  return map_texts<T>(pool, x, [&](const std::string& text) {
    T value{};
    TORCH_CHECK_VALUE(read(numeral(text), value), "cannot cast the string '", text, "' to ", type);
    return value;
  });
}

Tensor string_to_number(const Pool& pool, const Tensor& x, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return parse_each<float>(*pool, x, "float", read_floating<float>);
    case at::kDouble:
      return parse_each<double>(*pool, x, "double", read_floating<double>);
    case at::kLong:
      return parse_each<int64_t>(*pool, x, "an integer", read_integer);
    case at::kBool:
      return parse_each<bool>(*pool, x, "bool", read_bool);
    default:
      TORCH_CHECK(false, "string_to_number gives float, double, int64 or bool, not ", dtype);
  }
}

// ---- Lists of texts -----------------------------------------------------------------------------------------------

c10::List<std::string> texts(const Pool& pool, const Tensor& x) {
  const Tensor in = on_host(x);
  c10::List<std::string> result;
  result.reserve(in.numel());
  for (int64_t i = 0; i < in.numel(); ++i) result.push_back(pool->at(in.const_data_ptr<int64_t>()[i]));
  return result;
}

Tensor strings(const Pool& pool, const std::vector<std::string>& texts, at::Device device) {
  std::vector<int64_t> ids;
  for (const std::string& text : texts) ids.push_back(pool->intern(text));
  return at::tensor(ids, at::kLong).to(device);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;

  // StringConcat: x + y, broadcast.
  m.def("string_concat(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, Tensor y) -> Tensor");
  m.impl("string_concat", kAnyDevice, TORCH_FN(string_concat));

  // StringSplit: the substrings, padded with "" to the largest count, and the counts. No or an empty delimiter splits
  // at runs of white space; no or a negative maxsplit splits everywhere.
  m.def(
      "string_split(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, str? delimiter, int? maxsplit) -> "
      "(Tensor, Tensor)");
  m.impl("string_split", kAnyDevice, TORCH_FN(string_split));

  // RegexFullMatch: whether each string as a whole matches an RE2 pattern.
  m.def("regex_full_match(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, str pattern) -> Tensor");
  m.impl("regex_full_match", kAnyDevice, TORCH_FN(regex_full_match));

  // StringNormalizer: [C] or [1, C] without the stop words, in another case.
  m.def(
      "string_normalizer(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, str case_change_action, "
      "bool is_case_sensitive, str[] stopwords, str locale) -> Tensor");
  m.impl("string_normalizer", kAnyDevice, TORCH_FN(string_normalizer));

  // Cast to string, of any real dtype; is_uint64: an int64 tensor holds the bits of a uint64.
  m.def(
      "number_to_string(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, bool is_uint64=False) -> Tensor");
  m.impl("number_to_string", kAnyDevice, TORCH_FN(number_to_string));

  // Cast from string to float, double, int64 (or the bits of a uint64) or bool; narrower types are casts of these.
  m.def("string_to_number(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, ScalarType dtype) -> Tensor");
  m.impl("string_to_number", kAnyDevice, TORCH_FN(string_to_number));

  // The texts of a string tensor in row-major order, and a string tensor of rank 1 of texts.
  m.def("texts(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x) -> str[]");
  m.impl("texts", kAnyDevice, TORCH_FN(texts));
  m.def("strings(__torch__.torch.classes.onnx_torch.StringPool pool, str[] texts, Device device) -> Tensor", strings);
}

}  // namespace onnxtorch
