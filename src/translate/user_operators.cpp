#include "translate/user_operators.h"

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "base/fork_safe.h"
#include "import/model_reader.h"
#include "import/schema.h"

namespace onnxtorch {
namespace {

struct Table {
  ForkSafeMutex mutex;
  std::map<std::pair<std::string, std::string>, std::map<int64_t, TranslateFunction>> operators;
};

Table& table() {
  static Table table;
  return table;
}

}  // namespace

void register_operator(const std::string& domain, const std::string& op, int64_t since_version,
                       TranslateFunction translate) {
  if (newest_opset(canonical_domain(domain)) > 0) {
    throw InputError("\"" + domain +
                     "\" is a domain of the ONNX standard; operators are registered for domains of one's own");
  }
  const std::lock_guard lock(table().mutex);
  table().operators[{domain, op}][since_version] = std::move(translate);
}

std::optional<TranslateFunction> find_user_operator(const std::string& domain, const std::string& op,
                                                    int64_t opset_version) {
  const std::lock_guard lock(table().mutex);
  const auto versions = table().operators.find({domain, op});
  if (versions == table().operators.end()) return {};
  const auto after = versions->second.upper_bound(opset_version);
  if (after == versions->second.begin()) return {};
  return std::prev(after)->second;
}

}  // namespace onnxtorch
