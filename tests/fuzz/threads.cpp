// Runs models by many threads at once: one model by all of them, then one model by each, again and again with other
// models, and with inputs of two sizes where a model takes them. Results must be those of one thread, to the bit. Under
// ThreadSanitizer, it finds what threads do to each other.
#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "agree.h"
#include "case.h"
#include "files.h"
#include "onnx_torch/model.h"
#include "random.h"

// What ThreadSanitizer is to leave out; it calls the function where a program has one.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();

// Accesses by libtorch, which is not compiled with it: it does not see what guards what libtorch makes at its first use.
const char* __tsan_default_suppressions() { return "race:libtorch_cpu.so\n"; }

namespace onnxtorch::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

using Values = std::map<std::string, Data>;

struct Fed {
  Values feeds;
  Outputs expected;
};

struct Prepared {
  CompiledModel model;
  std::vector<Fed> sizes;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

void open_first_sizes(onnx::GraphProto& graph) {
  for (onnx::ValueInfoProto& input : *graph.mutable_input()) {
    if (!input.type().has_tensor_type()) continue;
    auto& dims = *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim();
    if (!dims.empty()) dims.Mutable(0)->set_dim_param("rows of " + input.name());
  }
}

// Each tensor without its last row, if it has several.
Values with_fewer_rows(const Values& feeds) {
  Values fewer;
  for (const auto& [name, data] : feeds) {
    const auto* const tensor = std::get_if<at::Tensor>(&data.value());
    const bool has_rows = tensor && tensor->dim() > 0 && tensor->size(0) > 1;
    fewer.emplace(name, has_rows ? Data(tensor->narrow(0, 0, tensor->size(0) - 1).clone()) : data);
  }
  return fewer;
}

// None where the model cannot be run.
std::optional<Prepared> prepared(const Case& of) {
  try {
    CompiledModel model = Model::from_bytes(of.model.SerializeAsString()).compile({.threads = 1});
    Outputs expected = model.run(of.feeds);
    return Prepared{std::move(model), {{of.feeds, std::move(expected)}}};
  } catch (const Error&) {
    return {};
  }
}

// None as well where the model gives something else each time.
std::optional<Prepared> prepared(const std::string& bytes) {
  std::optional<Case> of = case_of(bytes);
  if (!of || draws_numbers(of->model)) return {};
  Case opened = *of;
  open_first_sizes(*opened.model.mutable_graph());
  std::optional<Prepared> result = prepared(opened);
  if (!result) return prepared(*of);
  Values fewer = with_fewer_rows(of->feeds);
  try {
    Outputs expected = result->model.run(fewer);
    result->sizes.push_back({std::move(fewer), std::move(expected)});
  } catch (const Error&) {  // the model takes the one size alone
  }
  return result;
}

bool run_agrees(const Prepared& prepared, size_t number) {
  const auto& [feeds, expected] = prepared.sizes[number % prepared.sizes.size()];
  const Outputs outputs = prepared.model.run(feeds);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!agree(outputs[i], expected[i], same_bits)) return false;
  return true;
}

template <typename Work>
void at_once(size_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

int run(const std::string& folder, double seconds, size_t threads) {
  constexpr int kRuns = 20;  // of a model, by each thread
  const std::vector<std::string> files = files_in(folder);
  Random random(std::random_device{}());
  std::atomic<int64_t> runs = 0, differ = 0, of_two_sizes = 0;
  const auto count = [&](const Prepared& model, size_t first) {
    for (int i = 0; i < kRuns; ++i) differ += run_agrees(model, first + i) ? 0 : 1;
    runs += kRuns;
    of_two_sizes += model.sizes.size() > 1 ? kRuns : 0;
  };
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (Clock::now() < end) {
    std::vector<const std::string*> chosen;
    for (size_t i = 0; i < threads; ++i) chosen.push_back(&random.of(files));
    std::vector<std::optional<Prepared>> models(threads);
    at_once(threads, [&](size_t i) { models[i] = prepared(*chosen[i]); });
    std::erase(models, std::nullopt);
    if (models.empty()) continue;
    at_once(threads, [&](size_t i) { count(*models[0], i); });
    at_once(models.size(), [&](size_t i) { count(*models[i], i); });
  }
  std::cout << runs << " runs by " << threads << " threads, " << of_two_sizes << " of models of two sizes; " << differ
            << " differ" << std::endl;
  return differ > 0 ? 1 : 0;
}

}  // namespace
}  // namespace onnxtorch::fuzz

int main(int count, char** values) {
  if (count != 4) {
    std::cerr << "usage: onnx_torch_threads FOLDER SECONDS THREADS\n";
    return 2;
  }
  try {
    onnxtorch::make_ready();
    return onnxtorch::fuzz::run(values[1], std::stod(values[2]), std::stoul(values[3]));
  } catch (const std::exception& error) {
    std::cerr << "onnx_torch_threads: " << error.what() << "\n";
    return 1;
  }
}
