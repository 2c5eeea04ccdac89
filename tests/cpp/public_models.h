// Models as bytes.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "graph_builder.h"

namespace onnxtorch::testing {

using onnx::TensorProto;

inline at::Tensor longs(std::vector<int64_t> values) { return at::tensor(values); }

// Makes a model of opset 22, and version `version` of the domain "test.cpp".
inline std::string model_bytes(const std::function<void(onnx::ModelProto&, GraphBuilder&)>& build,
                               int64_t version = 1) {
  onnx::ModelProto model;
  model.set_ir_version(10);
  model.add_opset_import()->set_version(22);
  auto* import = model.add_opset_import();
  import->set_domain("test.cpp");
  import->set_version(version);
  GraphBuilder graph(*model.mutable_graph());
  build(model, graph);
  return model.SerializeAsString();
}

}  // namespace onnxtorch::testing
