// The order of a graph's nodes, in which they are translated.
#pragma once

#include <onnx/onnx-ml.pb.h>

namespace onnxtorch {

// Puts each node behind those whose outputs it reads, in graphs, their subgraphs and functions. ONNX wants it so, and
// some converters do not heed it. Nodes that are in order stay as they are. Throws InvalidModelError where nodes wait
// for one another.
void order_nodes(onnx::ModelProto& model);

}  // namespace onnxtorch
