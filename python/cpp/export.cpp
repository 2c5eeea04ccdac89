#include "export.h"

#include <pybind11/stl.h>
#include <torch/csrc/jit/serialization/export.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "export/script_module.h"
#include "external_reader.h"
#include "import/model_reader.h"
#include "interruption.h"
#include "python_torch.h"
#include "runtime/pipeline.h"
#include "text.h"
#include "translate/translate.h"

namespace py = pybind11;

namespace onnxtorch {
namespace {

// Writes the module to a file. Gives what went wrong with the file, as errno has it, or 0. torch's own writer ends the
// process where it cannot write.
int written(const torch::jit::Module& module, const std::string& file, const torch::jit::ExtraFilesMap& extra_files) {
  std::FILE* const out = std::fopen(file.c_str(), "wb");
  if (!out) return errno;
  int failure = 0;
  const auto write = [&](const void* data, size_t size) {
    if (failure == 0 && std::fwrite(data, 1, size, out) != size) failure = errno;
    return size;
  };
  const auto close = [&](std::FILE* stream) {
    if (std::fclose(stream) != 0 && failure == 0) failure = errno;
  };
  {
    const std::unique_ptr<std::FILE, decltype(close)> closed(out, close);
    torch::jit::ExportModule(module, write, extra_files);
  }
  return failure;
}

// A model translated for export; python/onnx_torch/_pytorch/export.py names its parts.
class Export {
 public:
  Export(const std::shared_ptr<const ModelFile>& file, const Options& options) {
    check_options(options, c10::kCPU);
    check(file->proto);
    TranslateOptions translating = translate_options(options);
    translating.trainable = true;
    program_ = translate(file, translating);
    refuse_text(program_);
  }

  py::list weight_names() const {
    py::list names;
    for (const size_t i : weights(program_)) names.append(text(program_.constants[i].name));
    return names;
  }
  py::list input_names() const { return texts(arguments(program_)); }
  py::list output_names() const {
    py::list names;
    for (const OutputSpec& output : program_.outputs) names.append(text(output.name));
    return names;
  }
  py::list node_labels() const {
    py::list labels;
    for (const TranslatedNode& node : program_.nodes) labels.append(text(node.label.str()));
    return labels;
  }
  py::list custom() const {
    py::list result;
    for (const CustomOperator& op : custom_operators(program_))
      result.append(py::make_tuple(text(op.name), text(op.node.str())));
    return result;
  }

  py::object module(const ModuleNames& names) const {
    return py::reinterpret_steal<py::object>(python_torch().object_of_module(script_module(program_, names)));
  }
  void save(const std::string& file, const ModuleNames& names, const torch::jit::ExtraFilesMap& extra_files) const {
    const int failure = without_gil([&] { return written(script_module(program_, names), file, extra_files); });
    if (failure == 0) return;
    errno = failure;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, file.c_str());
    throw py::error_already_set();
  }

 private:
  Program program_;
};

}  // namespace

void bind_export(py::module_& m) {
  py::class_<ModuleNames>(m, "ModuleNames",
                          "What a module calls the inputs, the weights (by paths) and its record of them.")
      .def(py::init(
               [](std::vector<std::string> inputs, std::vector<std::vector<std::string>> weights, std::string record) {
                 return ModuleNames{std::move(inputs), std::move(weights), std::move(record)};
               }),
           py::arg("inputs"), py::arg("weights"), py::arg("record"));

  py::class_<Export>(m, "Export")
      .def_static(
          "from_bytes",
          [](const py::bytes& bytes, const std::string& directory, const Options& options, const py::object& external) {
            const auto view = static_cast<std::string_view>(bytes);
            const ExternalReader reader = reader_from_python(external);
            return without_gil([&] { return Export(ModelFile::from_bytes(view, directory, reader), options); });
          })
      .def_static("from_path",
                  [](const std::string& path, const std::string& directory, const Options& options,
                     const py::object& external) {
                    const ExternalReader reader = reader_from_python(external);
                    return without_gil([&] { return Export(ModelFile::from_path(path, directory, reader), options); });
                  })
      .def_property_readonly("weights", &Export::weight_names)
      .def_property_readonly("inputs", &Export::input_names)
      .def_property_readonly("outputs", &Export::output_names)
      .def_property_readonly("nodes", &Export::node_labels, "The ONNX nodes, by the numbers that the graph's have.")
      .def_property_readonly("custom_operators", &Export::custom,
                             "(operator, ONNX node) of each that torch itself lacks.")
      .def("module", &Export::module, py::arg("names"), "A torch._C.ScriptModule.")
      .def("save", &Export::save, py::arg("file"), py::arg("names"), py::arg("extra_files"),
           "Writes the module to a file, as torch.jit.save does.");
}

}  // namespace onnxtorch
