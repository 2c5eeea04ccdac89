// Loads a TorchScript file and prints forward(1, 2, …, n) as plain numbers: a program that knows LibTorch only.
#include <torch/script.h>

#include <iostream>

int main(int, char** argv) {
  torch::jit::Module module = torch::jit::load(argv[1]);
  const at::Tensor result = module.forward({at::arange(1, std::stoi(argv[2]) + 1, at::kFloat)}).toTensor();
  for (int64_t i = 0; i < result.numel(); ++i) std::cout << result.view(-1)[i].item<double>() << " ";
}
