// The model around a node, for where its nodes and weights tell together what none of them tells by itself.
#pragma once

namespace onnx {
class GraphProto;
}

namespace onnxtorch {

class Translator;

const onnx::GraphProto& main_graph(const Translator& translator);

}  // namespace onnxtorch
