// What ATen computes of floating-point numbers only on CUDA, and of integers as well on the CPU.
#pragma once

namespace onnxtorch {

struct Program;

// Products of matrices and maximum pooling become operators that take integers on any device.
void take_integers(Program& program);

}  // namespace onnxtorch
