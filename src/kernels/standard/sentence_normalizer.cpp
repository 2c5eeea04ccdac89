#include "kernels/standard/sentence_normalizer.h"

#include <utility>

#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

constexpr std::string_view kSpace = " ";

// Gives the first bytes of a text as an integer, the lowest byte first.
uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

// Finds the parts of the rules: the size of the double array, the array, and the right sides, with a zero behind each.
SentenceNormalizer::SentenceNormalizer(Options options, const PrefixTree* kept)
    : options_(std::move(options)), kept_(kept) {
  const std::string_view rules = options_.precompiled_charsmap;
  if (rules.empty()) return;
  constexpr size_t kUnit = sizeof(uint32_t);
  const size_t size = rules.size() < kUnit ? 0 : little_endian(rules);
  TORCH_CHECK_VALUE(size >= kUnit && size < rules.size() - kUnit && size % kUnit == 0,
                    "the rules of normalization (precompiled_charsmap) are broken");
  units_ = rules.substr(kUnit, size);
  results_ = rules.substr(kUnit + size);
}

// Gives a unit of the double array. What lies beyond it is one that no byte leads to.
uint32_t SentenceNormalizer::unit(uint64_t at) const {
  constexpr uint32_t kOfNoByte = uint32_t{1} << 31;
  const uint64_t byte = at * sizeof(uint32_t);
  return byte < units_.size() ? little_endian(units_.substr(byte)) : kOfNoByte;
}

// Takes the rule with the longest left side that the text begins with; one of no bytes where there is none. A unit of
// the double array has the byte that leads to it, the distance to its children, and whether a left side ends there: then
// its first child has the place of the right side.
SentenceNormalizer::Step SentenceNormalizer::rule(std::string_view text) const {
  constexpr uint32_t kByte = (uint32_t{1} << 31) | 0xFF, kIsEnd = 1 << 8, kIsFar = 1 << 9,
                     kPlace = ~(uint32_t{1} << 31);
  const auto children = [](uint64_t at, uint32_t unit) {
    return at ^ (uint64_t{unit >> 10} << ((unit & kIsFar) != 0 ? 8 : 0));
  };
  Step longest{};
  if (units_.empty()) return longest;
  uint64_t at = children(0, unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    const uint32_t found = unit(at);
    if ((found & kByte) != byte) break;
    at = children(at, found);
    if ((found & kIsEnd) == 0) continue;
    const uint32_t place = unit(at) & kPlace;
    TORCH_CHECK_VALUE(place < results_.size(), "a rule of normalization (precompiled_charsmap) is broken");
    const std::string_view right = results_.substr(place);
    longest = {right.substr(0, right.find('\0')), i + 1};
  }
  constexpr size_t kMostBytes = 1024;  // the longest of Unicode's own rules makes 33 of 3
  TORCH_CHECK_VALUE(longest.becomes.size() <= kMostBytes, "a rule of normalization makes ", longest.becomes.size(),
                    " bytes of a character");
  return longest;
}

// A byte that begins no character becomes U+FFFD.
SentenceNormalizer::Step SentenceNormalizer::step(std::string_view text) const {
  if (const size_t size = kept_ ? kept_->longest_prefix(text) : 0) return {text.substr(0, size), size};
  if (const Step found = rule(text); found.size > 0) return found;
  const size_t size = size_of_valid_character(text);
  return size > 0 ? Step{text.substr(0, size), size} : Step{kReplacement, 1};
}

SentenceNormalizer::Normalized SentenceNormalizer::operator()(std::string_view text) const {
  Normalized result;
  const std::string_view sign = options_.escape_whitespaces ? kSpaceSign : kSpace;
  int64_t origin = 0;
  const auto add = [&](std::string_view part) {
    result.text += part;
    result.origins.insert(result.origins.end(), part.size(), origin);
  };
  const auto take = [&](const Step& step) {
    text.remove_prefix(step.size);
    origin += static_cast<int64_t>(step.size);
  };
  const bool shortens = options_.remove_extra_whitespaces;
  while (shortens && !text.empty()) {
    const Step first = step(text);
    if (first.becomes != kSpace) break;
    take(first);
  }
  if (text.empty()) return {.text = "", .origins = {origin}};
  const bool is_suffix = options_.treat_whitespace_as_suffix;
  if (options_.add_dummy_prefix && !is_suffix) add(sign);
  bool follows_space = shortens;
  while (!text.empty()) {
    const Step next = step(text);
    std::string_view part = next.becomes;
    while (follows_space && part.starts_with(kSpace)) part.remove_prefix(kSpace.size());
    if (!part.empty()) follows_space = shortens && part.ends_with(kSpace);
    for (size_t i = 0; i < part.size(); ++i) add(part[i] == ' ' ? sign : part.substr(i, 1));
    take(next);
  }
  while (shortens && result.text.ends_with(sign)) {
    result.text.erase(result.text.size() - sign.size());
    origin = result.origins[result.text.size()];
    result.origins.resize(result.text.size());
  }
  if (options_.add_dummy_prefix && is_suffix) add(sign);
  result.origins.push_back(origin);
  return result;
}

}  // namespace onnxtorch
