// Generates tokens with a language model, and prints them as they come, with their speed at the end:
//
//   generate [--max-new-tokens COUNT] [--sample SEED] MODEL TOKEN...
//
// The model is a file or a folder (docs/language_models.md tells which). Tokenizers are Python's: `onnx-torch generate`
// takes a text.
#include <onnx_torch/language_model.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void generate(const std::string& file, const onnxtorch::Tokens& prompt, const onnxtorch::GenerationOptions& options) {
  const auto lm = onnxtorch::LanguageModel::load(file);
  const auto start = Clock::now();
  onnxtorch::Generation generation = lm.generation({.ids = {prompt}}, options);
  size_t count = 0;
  while (!generation.done()) {
    const std::vector<onnxtorch::Tokens> step = generation.step();  // of each sequence, of which there is one
    for (const int64_t token : step[0]) {
      std::printf("%s%lld", count++ > 0 ? " " : "", static_cast<long long>(token));
      std::fflush(stdout);
    }
  }
  const std::chrono::duration<double> seconds = Clock::now() - start;
  std::printf("\n");
  std::fprintf(stderr, "%zu tokens after %zu, %.1f per second\n", count, prompt.size(),
               static_cast<double>(count) / seconds.count());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  try {
    onnxtorch::GenerationOptions options;
    while (args.size() >= 2 && args[0].starts_with("--")) {
      if (args[0] == "--max-new-tokens") {
        options.max_new_tokens = std::stoll(args[1]);
      } else if (args[0] == "--sample") {
        options.do_sample = true;
        options.seed = std::stoull(args[1]);
      } else {
        break;
      }
      args.erase(args.begin(), args.begin() + 2);
    }
    if (args.size() < 2 || args[0].starts_with("--")) {
      std::fprintf(stderr, "usage: %s [--max-new-tokens COUNT] [--sample SEED] MODEL TOKEN...\n", argv[0]);
      return 2;
    }
    onnxtorch::Tokens prompt;
    for (size_t i = 1; i < args.size(); ++i) prompt.push_back(std::stoll(args[i]));
    generate(args[0], prompt, options);
  } catch (const std::invalid_argument&) {  // of a number
    std::fprintf(stderr, "a token, a count and a seed are numbers\n");
    return 2;
  } catch (const std::exception& error) {  // ours, or torch's own
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
