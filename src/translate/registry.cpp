#include "translate/registry.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <tuple>

namespace onnxtorch {

Registry::Entry& Registry::Entry::since(int version, TranslateFunction translate) {
  const auto place = std::ranges::lower_bound(ranges_, version, {}, &Range::first);
  if (place != ranges_.end() && place->first == version) {
    throw std::logic_error(std::string(name_) + " since version " + std::to_string(version) + " is registered twice");
  }
  ranges_.insert(place, {version, std::move(translate)});
  return *this;
}

Registry::Entry& Registry::Entry::reviewed_to(int version) {
  if (ranges_.empty() || version < ranges_.back().first) {
    throw std::logic_error(std::string(name_) + " cannot be reviewed to a version before its newest translator");
  }
  reviewed_to_ = version;
  return *this;
}

int Registry::Entry::last_version() const { return std::max(reviewed_to_, ranges_.back().first); }

const TranslateFunction* Registry::Entry::find(int schema_version) const {
  const auto after = std::ranges::upper_bound(ranges_, schema_version, {}, &Range::first);
  if (after == ranges_.begin() || schema_version > last_version()) return nullptr;
  return &std::prev(after)->translate;
}

size_t Registry::Hash::operator()(const Key& key) const {
  const std::hash<std::string_view> hash;
  return c10::hash_combine(hash(key.first), hash(key.second));
}

Registry::Entry& Registry::op(std::string_view domain, std::string_view name) {
  const auto [entry, added] = entries_.emplace(Key(domain, name), Entry(name));
  if (!added) throw std::logic_error("operator " + std::string(name) + " is registered twice");
  return entry->second;
}

const TranslateFunction* Registry::find(std::string_view domain, std::string_view op, int schema_version) const {
  const auto entry = entries_.find(Key(domain, op));
  return entry == entries_.end() ? nullptr : entry->second.find(schema_version);
}

std::vector<Registry::Row> Registry::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, entry] : entries_) {
    Row row{std::string(key.first), std::string(key.second), {}, entry.last_version()};
    for (const Entry::Range& range : entry.ranges_) row.since.push_back(range.first);
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, {}, [](const Row& row) { return std::tie(row.domain, row.op); });
  return rows;
}

}  // namespace onnxtorch
