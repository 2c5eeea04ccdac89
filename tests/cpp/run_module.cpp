// run_module FILE N [LIBRARY]: loads a TorchScript file and prints forward(1, 2, …, N) as plain numbers; a program that
// knows LibTorch only. The library holds operators that torch itself lacks.
#include <dlfcn.h>
#include <torch/script.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc > 3 && !dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL)) {
    std::cerr << dlerror() << "\n";
    return 1;
  }
  torch::jit::Module module = torch::jit::load(argv[1]);
  const at::Tensor result = module.forward({at::arange(1, std::stoi(argv[2]) + 1, at::kFloat)}).toTensor();
  for (int64_t i = 0; i < result.numel(); ++i) std::cout << result.view(-1)[i].item<double>() << " ";
}
