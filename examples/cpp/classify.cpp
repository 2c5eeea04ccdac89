// Classifies greyscale images with an ONNX model, and prints the likeliest classes:
//
//   classify [--device cuda:0] MODEL.onnx IMAGE.pgm...
//
// The model takes images of shape [batch, height, width] with values from 0 to 1, and gives probabilities. If its
// metadata has an entry "classes", those are the classes' names, separated by spaces. make_model.py makes such a model.
#include <ATen/ATen.h>
#include <onnx_torch/model.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

// Reads a binary PGM image as a tensor of shape [height, width] with values from 0 to 1.
at::Tensor read_image(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string magic;
  int64_t width = 0, height = 0, brightest = 0;
  stream >> magic >> width >> height >> brightest;
  stream.get();  // the one character that ends the header
  if (!stream || magic != "P5" || width < 1 || height < 1 || brightest < 1 || brightest > 255) {
    throw onnxtorch::InputError(file + " is not a binary PGM image of one byte a pixel");
  }
  at::Tensor pixels = at::empty({height, width}, at::kByte);
  stream.read(reinterpret_cast<char*>(pixels.data_ptr<uint8_t>()), pixels.numel());
  if (!stream) throw onnxtorch::InputError(file + " ends too early");
  return pixels.to(at::kFloat) / brightest;
}

std::vector<std::string> class_names(const onnxtorch::Model& model, int64_t count) {
  std::vector<std::string> names;
  const auto metadata = model.metadata();
  if (const auto classes = metadata.find("classes"); classes != metadata.end()) {
    std::istringstream words(classes->second);
    for (std::string name; words >> name;) names.push_back(name);
  }
  for (auto i = static_cast<int64_t>(names.size()); i < count; ++i) names.push_back("class " + std::to_string(i));
  return names;
}

void classify(const std::string& device, const std::string& model_file, const std::vector<std::string>& image_files) {
  const auto model = onnxtorch::Model::load(model_file);
  const auto compiled = model.compile({.device = device});

  std::vector<at::Tensor> images;
  for (const std::string& file : image_files) images.push_back(read_image(file));
  const at::Tensor probabilities = compiled.run({at::stack(images)})[0].tensor().cpu();

  const std::vector<std::string> names = class_names(model, probabilities.size(1));
  const auto [best, indices] = probabilities.topk(std::min<int64_t>(3, probabilities.size(1)));
  for (size_t i = 0; i < image_files.size(); ++i) {
    std::printf("%s:", image_files[i].c_str());
    for (int64_t k = 0; k < best.size(1); ++k) {
      const auto row = static_cast<int64_t>(i);
      std::printf("%s %s %.1f %%", k ? "," : "", names[indices[row][k].item<int64_t>()].c_str(),
                  100 * best[row][k].item<double>());
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  std::string device = "cpu";
  if (args.size() >= 2 && args[0] == "--device") {
    device = args[1];
    args.erase(args.begin(), args.begin() + 2);
  }
  if (args.size() < 2) {
    std::fprintf(stderr, "usage: %s [--device cuda:0] MODEL.onnx IMAGE.pgm...\n", argv[0]);
    return 2;
  }
  try {
    classify(device, args[0], {args.begin() + 1, args.end()});
  } catch (const std::exception& error) {  // ours, or torch's own
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
