// The translation table: (domain, operator, version) → translator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "translate/translator.h"

namespace onnxtorch {

// A process fills it for its first model, so it is made to be filled quickly: the names are those of literals, which
// nothing copies.
class Registry {
 public:
  // The translators of one operator. since(v) holds from schema version v up to the next registered one; past
  // reviewed_to, the newest schema version somebody has read and found covered, the look-up finds nothing.
  class Entry {
   public:
    Entry& since(int version, TranslateFunction translate);
    Entry& reviewed_to(int version);

   private:
    friend class Registry;
    explicit Entry(std::string_view name) : name_(name) {}
    const TranslateFunction* find(int schema_version) const;
    int last_version() const;

    struct Range {
      int first;  // version
      TranslateFunction translate;
    };
    std::string_view name_;
    std::vector<Range> ranges_;  // in the order of versions
    int reviewed_to_ = 0;        // 0: the newest registered version
  };

  Entry& op(std::string_view name) { return op("", name); }
  Entry& op(std::string_view domain, std::string_view name);

  // Finds a translator; null where there is none. `schema_version` is the since_version of the schema in force.
  const TranslateFunction* find(std::string_view domain, std::string_view op, int schema_version) const;

  struct Row {
    std::string domain, op;
    std::vector<int> since;
    int reviewed_to;
  };
  std::vector<Row> rows() const;  // by domain and operator, in order

 private:
  using Key = std::pair<std::string_view, std::string_view>;  // domain and operator
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  std::unordered_map<Key, Entry, Hash> entries_;
};

// Gives the table of everything this library translates.
const Registry& registry();

}  // namespace onnxtorch
