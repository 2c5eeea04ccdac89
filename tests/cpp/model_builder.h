// Small models for tests.
#pragma once

#include <memory>

#include "graph_builder.h"
#include "import/model_reader.h"

namespace onnxtorch::testing {

class ModelBuilder : public GraphBuilder {
 public:
  explicit ModelBuilder(int64_t opset = 22) : ModelBuilder(std::make_shared<ModelFile>(), opset) {}

  std::shared_ptr<ModelFile> file() const { return file_; }

 private:
  ModelBuilder(const std::shared_ptr<ModelFile>& file, int64_t opset)
      : GraphBuilder(*file->proto.mutable_graph()), file_(file) {
    file->proto.set_ir_version(10);
    auto* import = file->proto.add_opset_import();
    import->set_domain("");
    import->set_version(opset);
  }

  std::shared_ptr<ModelFile> file_;
};

}  // namespace onnxtorch::testing
