#include "import/schema.h"

#include <algorithm>
#include <tuple>

#include "import/schema_tables.h"

namespace onnxtorch {

const AttributeSchema* OperatorSchema::find_attribute(std::string_view attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &AttributeSchema::name);
  return found == attributes.end() ? nullptr : &*found;
}

namespace {

const OperatorSchema* find_in(std::span<const OperatorSchema> schemas, std::string_view domain, std::string_view op,
                              int64_t opset_version) {
  using Key = std::tuple<std::string_view, std::string_view, int64_t>;
  const auto key_of = [](const OperatorSchema& schema) {
    return Key(schema.domain, schema.name, schema.since_version);
  };
  const auto after = std::ranges::upper_bound(schemas, Key(domain, op, opset_version), {}, key_of);
  if (after == schemas.begin()) return nullptr;
  const OperatorSchema& last = *std::prev(after);
  return last.domain == domain && last.name == op ? &last : nullptr;
}

}  // namespace

const OperatorSchema* find_schema(std::string_view domain, std::string_view op, int64_t opset_version) {
  for (const auto& schemas : {all_schemas(), experimental_schemas(), onnxruntime_schemas(), community_schemas()}) {
    if (const OperatorSchema* found = find_in(schemas, domain, op, opset_version)) return found;
  }
  return nullptr;
}

int newest_opset(std::string_view domain) {
  const auto domains = all_domains();
  const auto found = std::ranges::find(domains, domain, &DomainVersion::domain);
  return found == domains.end() ? 0 : found->newest;
}

}  // namespace onnxtorch
