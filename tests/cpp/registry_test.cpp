#include "translate/registry.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "import/schema.h"

namespace onnxtorch {
namespace {

Values nothing(Translator&, const NodeView&) { return {}; }
Values something(Translator&, const NodeView&) { return {Value{}}; }

size_t results(const TranslateFunction* translate) {
  alignas(16) static char unused[1];
  return (*translate)(*reinterpret_cast<Translator*>(unused), *reinterpret_cast<const NodeView*>(unused)).size();
}

TEST(Registry, ARangeEndsWhereTheNextBegins) {
  Registry r;
  r.op("Op").since(2, nothing).since(13, something).reviewed_to(19);
  EXPECT_EQ(r.find("", "Op", 1), nullptr);
  EXPECT_EQ(results(r.find("", "Op", 2)), 0u);
  EXPECT_EQ(results(r.find("", "Op", 12)), 0u);
  EXPECT_EQ(results(r.find("", "Op", 13)), 1u);
  EXPECT_EQ(results(r.find("", "Op", 19)), 1u);
}

TEST(Registry, IsClosedBeyondTheReviewedVersion) {
  Registry r;
  r.op("Reviewed").since(2, nothing).reviewed_to(19);
  r.op("Unreviewed").since(2, nothing).since(7, nothing);
  EXPECT_NE(r.find("", "Reviewed", 19), nullptr);
  EXPECT_EQ(r.find("", "Reviewed", 20), nullptr);
  EXPECT_NE(r.find("", "Unreviewed", 7), nullptr);
  EXPECT_EQ(r.find("", "Unreviewed", 8), nullptr);
}

TEST(Registry, RefusesDuplicatesAndReviewsOfThePast) {
  Registry r;
  r.op("Op").since(2, nothing);
  EXPECT_THROW(r.op("Op"), std::logic_error);
  EXPECT_THROW(r.op("Other").since(3, nothing).since(3, something), std::logic_error);
  EXPECT_THROW(r.op("Third").since(5, nothing).reviewed_to(4), std::logic_error);
  EXPECT_THROW(r.op("Fourth").reviewed_to(4), std::logic_error);
}

TEST(Registry, KeepsDomainsApart) {
  Registry r;
  r.op("ai.onnx.ml", "Op").since(1, nothing);
  EXPECT_EQ(r.find("", "Op", 1), nullptr);
  EXPECT_NE(r.find("ai.onnx.ml", "Op", 1), nullptr);
}

TEST(TheTable, NamesOnlyWhatTheSchemasHave) {
  std::map<std::pair<std::string, std::string>, std::set<int>> versions;
  for (const auto schemas : {all_schemas(), experimental_schemas(), onnxruntime_schemas(), community_schemas()}) {
    for (const OperatorSchema& schema : schemas) {
      versions[{std::string(schema.domain), std::string(schema.name)}].insert(schema.since_version);
    }
  }
  for (const Registry::Row& row : registry().rows()) {
    const auto schema = versions.find({row.domain, row.op});
    ASSERT_NE(schema, versions.end()) << row.domain << ' ' << row.op;
    for (const int since : row.since) EXPECT_TRUE(schema->second.contains(since)) << row.op << ' ' << since;
    EXPECT_TRUE(schema->second.contains(row.reviewed_to)) << row.op << " reviewed to " << row.reviewed_to;
  }
}

}  // namespace
}  // namespace onnxtorch
