#include "language/parts.h"

#include <algorithm>

namespace onnxtorch {
namespace {

bool gives(const Decoder& decoder, const std::string& name) {
  return std::ranges::any_of(decoder.layout().caches,
                             [&](const CacheEntry& e) { return e.name == name && !e.present.empty(); });
}

}  // namespace

std::shared_ptr<const LanguageModelParts> make_parts(Decoder first, std::optional<Decoder> with_past,
                                                     std::optional<Encoder> encoder) {
  const Decoder& next = with_past ? *with_past : first;
  std::vector<CacheEntry> caches;
  for (const CacheEntry& entry : next.layout().caches) {
    if (entry.past.empty()) continue;
    const bool is_given = gives(first, entry.name) && (entry.of_encoder || gives(next, entry.name));
    if (!is_given) throw InputError("no output of the model gives what its input \"" + entry.past + "\" takes next");
    caches.push_back(entry);
  }
  if (with_past && caches.empty()) throw InputError("the model that is to follow the first step takes no past");
  const PastForm form = next.past_form();
  return std::make_shared<const LanguageModelParts>(
      LanguageModelParts{std::move(first), std::move(with_past), std::move(encoder),
                         std::make_shared<const std::vector<CacheEntry>>(std::move(caches)), form});
}

}  // namespace onnxtorch
