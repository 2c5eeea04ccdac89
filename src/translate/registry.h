// The translation table: (domain, operator, version) → translator.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "translate/translator.h"

namespace onnxtorch {

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
    explicit Entry(std::string name) : name_(std::move(name)) {}
    const TranslateFunction* find(int schema_version) const;

    std::string name_;
    std::map<int, TranslateFunction> ranges_;
    int reviewed_to_ = 0;  // 0: the newest registered version
  };

  Entry& op(const std::string& name) { return op("", name); }
  Entry& op(std::string domain, const std::string& name);

  // Finds a translator; null where there is none. `schema_version` is the since_version of the schema in force.
  const TranslateFunction* find(std::string_view domain, std::string_view op, int schema_version) const;

  struct Row {
    std::string domain, op;
    std::vector<int> since;
    int reviewed_to;
  };
  std::vector<Row> rows() const;

 private:
  std::map<std::pair<std::string, std::string>, Entry, std::less<>> entries_;
};

// Gives the table of everything this library translates.
const Registry& registry();

}  // namespace onnxtorch
