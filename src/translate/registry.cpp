#include "translate/registry.h"

#include <algorithm>
#include <stdexcept>

namespace onnxtorch {

Registry::Entry& Registry::Entry::since(int version, TranslateFunction translate) {
  if (!ranges_.emplace(version, std::move(translate)).second) {
    throw std::logic_error(name_ + " since version " + std::to_string(version) + " is registered twice");
  }
  return *this;
}

Registry::Entry& Registry::Entry::reviewed_to(int version) {
  if (ranges_.empty() || version < ranges_.rbegin()->first) {
    throw std::logic_error(name_ + " cannot be reviewed to a version before its newest translator");
  }
  reviewed_to_ = version;
  return *this;
}

const TranslateFunction* Registry::Entry::find(int schema_version) const {
  const auto after = ranges_.upper_bound(schema_version);
  if (after == ranges_.begin()) return nullptr;
  if (schema_version > std::max(reviewed_to_, ranges_.rbegin()->first)) return nullptr;
  return &std::prev(after)->second;
}

Registry::Entry& Registry::op(std::string domain, const std::string& name) {
  const auto [entry, added] = entries_.emplace(std::pair{std::move(domain), name}, Entry(name));
  if (!added) throw std::logic_error("operator " + name + " is registered twice");
  return entry->second;
}

const TranslateFunction* Registry::find(std::string_view domain, std::string_view op, int schema_version) const {
  const auto entry = entries_.find(std::pair{std::string(domain), std::string(op)});
  return entry == entries_.end() ? nullptr : entry->second.find(schema_version);
}

std::vector<Registry::Row> Registry::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, entry] : entries_) {
    Row row{key.first, key.second, {}, std::max(entry.reviewed_to_, entry.ranges_.rbegin()->first)};
    for (const auto& range : entry.ranges_) row.since.push_back(range.first);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace onnxtorch
