#include "import/other_formats.h"

#include <array>

namespace onnxtorch {
namespace {

using namespace std::string_view_literals;

struct Format {
  size_t offset;
  std::string_view mark;
  std::string_view what;
};

constexpr std::array kFormats = {
    Format{0, "version https://git-lfs"sv, "a pointer of Git LFS; fetch the file that it stands for: git lfs pull"},
    Format{0, "<!DOCTYPE html"sv, "a page of HTML; what was to be downloaded was not"},
    Format{0, "<!doctype html"sv, "a page of HTML; what was to be downloaded was not"},
    Format{0, "<html"sv, "a page of HTML; what was to be downloaded was not"},
    Format{0, "<?xml"sv, "XML, as OpenVINO's models are; give the ONNX model that it was made from"},
    Format{0, "PK\3\4"sv, "a zip archive; unpack it or, if PyTorch saved it, export the model by torch.onnx.export"},
    Format{0, "\x1f\x8b"sv, "compressed by gzip; unpack it"},
    Format{0, "\x80\2"sv, "a pickle, as PyTorch saved models once; export the model by torch.onnx.export"},
    Format{0, "\x89HDF"sv, "HDF5, as Keras saves models; convert it by tf2onnx"},
    Format{0, "GGUF"sv, "GGUF, as llama.cpp reads it; export the model that it was made from by optimum"},
    Format{0, "\x93NUMPY"sv, "an array of numpy's"},
    Format{4, "TFL3"sv, "a TensorFlow Lite model; convert it by tf2onnx"},
    Format{4, "ORTM"sv, "in onnxruntime's own format; give the ONNX model that it was made from"},
    Format{8, "{\""sv, "safetensors, which are weights alone; export the model by optimum"},
};

}  // namespace

std::string_view other_format(std::string_view beginning) {
  for (const Format& format : kFormats) {
    const bool has_mark = beginning.size() >= format.offset && beginning.substr(format.offset).starts_with(format.mark);
    if (has_mark) return format.what;
  }
  return {};
}

std::string no_model(const std::string& file_is, std::string_view beginning) {
  const std::string_view other = other_format(beginning);
  return file_is + " not an ONNX model" + (other.empty() ? "" : ", but " + std::string(other));
}

std::string beginning_of(const OpenFile& file) {
  std::string beginning(32, '\0');
  beginning.resize(static_cast<size_t>(file.read_some(0, static_cast<int64_t>(beginning.size()), beginning.data())));
  return beginning;
}

}  // namespace onnxtorch
