#include "graph/writes.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {

void replace_rows(Program& program) {
  find_softmax(program);
  find_layer_norm(program);
  find_argmax(program);
  find_channel_means(program);
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
