#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstdlib>
#include <memory>

namespace onnxtorch {
namespace {

struct EndsTheProcess final : c10::OperatorKernel {
  ~EndsTheProcess() override { std::_Exit(7); }
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) {}
};

TEST(ProcessEnd, LeavesOperatorsWhereTheyAre) {
  const auto end = [] {
    auto* const library = new torch::Library(torch::Library::FRAGMENT, "end", {}, __FILE__, __LINE__);
    library->def("kept(Tensor x) -> Tensor");
    library->impl("kept", torch::dispatch(c10::DispatchKey::CPU, torch::CppFunction::makeFromBoxedFunctor(
                                                                     std::make_unique<EndsTheProcess>())));
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace onnxtorch
