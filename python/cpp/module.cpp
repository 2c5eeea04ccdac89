// The native module: PreparedModel, and the library's errors as Python exceptions.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>

#include "base/recording.h"
#include "base/text_of.h"
#include "base/work_beside.h"
#include "export.h"
#include "external_reader.h"
#include "import/external_data.h"
#include "import/other_formats.h"
#include "import/schema.h"
#include "import/tensor_proto.h"
#include "interruption.h"
#include "kernels/cpu/cpu_features.h"
#include "language.h"
#include "logged_warnings.h"
#include "numpy_values.h"
#include "onnx_torch/library.h"
#include "onnx_torch/model.h"
#include "onnx_torch/shortened.h"
#include "passes/device/host_work.h"
#include "passes/device/waits.h"
#include "python_torch.h"
#include "run.h"
#include "runtime/devices.h"
#include "runtime/pending_error.h"
#include "runtime/pipeline.h"
#include "runtime/processor_quota.h"
#include "shared_object.h"
#include "text.h"
#include "torch_values.h"
#include "translate/aten_operators.h"
#include "translate/refused.h"
#include "translate/registry.h"
#include "translate/translate.h"
#include "translate/user_operators.h"

namespace py = pybind11;
using namespace onnxtorch;

namespace {

py::object error_class(const char* name) { return py::module_::import("onnx_torch.errors").attr(name); }

void set_python_error(const char* name, const Error& error) {
  const NodeLabel& node = error.node();
  const py::object none = py::none();
  const py::object exception =
      error_class(name)(text(error.what()), py::arg("node_name") = node.empty() ? none : text(node.name),
                        py::arg("op_type") = node.empty() ? none : text(node.op_type),
                        py::arg("domain") = node.empty() ? none : text(node.domain),
                        py::arg("version") = node.empty() ? none : py::int_(node.version));
  PyErr_SetObject(error_class(name).ptr(), exception.ptr());
}

void translate_exception(
    std::exception_ptr thrown) {  // NOLINT(performance-unnecessary-value-param): as pybind11 calls it
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const InvalidModelError& e) {
    set_python_error("InvalidModelError", e);
  } catch (const UnsupportedError& e) {
    set_python_error("UnsupportedError", e);
  } catch (const InputError& e) {
    set_python_error("InputError", e);
  } catch (const DeviceError& e) {
    set_python_error("DeviceError", e);
  } catch (const StoppedError& e) {
    set_python_error("StoppedError", e);
  } catch (const RunError& e) {
    set_python_error("RunError", e);
  } catch (const Error& e) {
    set_python_error("Error", e);
  } catch (const py::error_already_set&) {
    throw;
  } catch (const py::builtin_exception&) {
    throw;
  } catch (const std::exception& e) {
    set_python_error("Error", Error(text_of(e)));
  }
}

std::string take_python_error() {
  const WithGil gil;
  return PyErr_Occurred() ? py::error_already_set().what() : "";
}

Limits limits_of(const std::map<std::string, double>& given) {
  static const std::map<std::string, double Limits::*> members = {{"seconds", &Limits::seconds},
                                                                  {"memory", &Limits::memory},
                                                                  {"nodes", &Limits::nodes},
                                                                  {"max_iterations", &Limits::max_iterations},
                                                                  {"prepare_seconds", &Limits::prepare_seconds},
                                                                  {"constant_bytes", &Limits::constant_bytes}};
  Limits limits;
  for (const auto& [name, most] : given) {
    const auto found = members.find(name);
    if (found == members.end()) {
      throw InputError("there is no limit \"" + name +
                       "\"; there are seconds, memory, max_iterations, prepare_seconds, nodes and constant_bytes");
    }
    limits.*found->second = most;
  }
  return limits;
}

template <typename Load>
std::shared_ptr<PythonModel> prepare(const Options& options, const Load& load,
                                     std::vector<std::vector<SavedWeights>> saved = {}) {
  const LoggedWarnings warnings;
  return without_gil([&] { return std::make_shared<PythonModel>(load(), options, std::move(saved)); });
}

// Gives (operator, name, domain, opset version, first output, number of the node around or None) of each node.
py::list describe_nodes(const std::vector<TranslatedNode>& nodes) {
  py::list described;
  for (const TranslatedNode& node : nodes) {
    described.append(py::make_tuple(text(node.label.op_type), text(node.label.name), text(node.label.domain),
                                    node.label.version, text(node.output), node.around));
  }
  return described;
}

// Gives (where, why) of each node.
py::list describe_placement(const PythonModel& model) {
  std::vector<NodePlacement> placed;
  {
    const WithoutGil no_gil;
    placed = model.placement();
  }
  py::list described;
  for (const NodePlacement& node : placed) described.append(py::make_tuple(node.where, node.why));
  return described;
}

// Tells what each input of the graph is, in order: ("input" or "weight", its name), ("constant", "") or ("strings",
// "").
py::list describe_graph_inputs(const Program& program) {
  py::list described;
  const auto add = [&](const char* what, const std::string& name) {
    described.append(py::make_tuple(what, text(name)));
  };
  for (const auto& [role, index] : program.graph_inputs) {
    switch (role) {
      case GraphInput::Role::Input:
        add("input", program.inputs[index].name);
        break;
      case GraphInput::Role::Constant: {
        const std::string& name = program.constants[index].name;
        add(name.empty() ? "constant" : "weight", name);
        break;
      }
      case GraphInput::Role::Strings:
        add("strings", "");
        break;
    }
  }
  return described;
}

// Gives (name, graph, what its inputs are) of each step of preparing a model.
py::list describe_steps(const PythonModel& model) {
  py::list steps;
  model.watch_steps([&](const char* step, const Program& program) {
    steps.append(py::make_tuple(step, text(program.graph->toString()), describe_graph_inputs(program)));
  });
  return steps;
}

// Runs a model once. Gives its nodes, (node, start, duration, own duration) in nanoseconds of each of their executions,
// and the outputs.
py::tuple profile(const PythonModel& model, const py::dict& feeds, std::vector<std::string> names,
                  std::optional<bool> as_torch, const StopFlag* stop) {
  PreparedModel::Profile profile;
  const py::list outputs = run(model, feeds, std::move(names), as_torch, stop, &profile);
  py::array_t<int64_t> times({static_cast<py::ssize_t>(profile.times.size()), py::ssize_t{4}});
  for (size_t i = 0; i < profile.times.size(); ++i) {
    const NodeTime& time = profile.times[i];
    const int64_t row[] = {time.node, time.start, time.duration, time.own};
    std::ranges::copy(row, times.mutable_data(static_cast<py::ssize_t>(i), 0));
  }
  return py::make_tuple(describe_nodes(profile.nodes), times, outputs);
}

// Gives sizes, symbolic names or None; None where the rank is open, too.
py::object describe_shape(const std::optional<std::vector<Dim>>& dims) {
  if (!dims) return py::none();
  py::list shape;
  for (const Dim& dim : *dims) {
    if (dim.size >= 0) {
      shape.append(dim.size);
    } else {
      shape.append(dim.symbol.empty() ? py::object(py::none()) : text(dim.symbol));
    }
  }
  return shape;
}

py::list describe_inputs(const PythonModel& model) {
  py::list inputs;
  for (const InputSpec& input : model.inputs()) {
    inputs.append(py::make_tuple(text(input.name), input.type.str(), describe_shape(input.dims), input.has_default));
  }
  return inputs;
}

py::list describe_outputs(const PythonModel& model) {
  py::list outputs;
  for (const OutputSpec& output : model.outputs()) outputs.append(py::make_tuple(text(output.name), output.type.str()));
  return outputs;
}

// Gives the shapes that the model declares of its outputs, on which nothing here relies.
py::list output_shapes(const PythonModel& model) {
  py::list shapes;
  for (const OutputSpec& output : model.outputs()) shapes.append(describe_shape(output.dims));
  return shapes;
}

// Gives the names of inputs and outputs that are declared as sparse tensors, which come and go as dense ones.
py::list sparse_values(const PythonModel& model) {
  py::list names;
  const onnx::GraphProto& graph = model.proto().graph();
  for (const auto* values : {&graph.input(), &graph.output()}) {
    for (const auto& value : *values) {
      if (value.type().has_sparse_tensor_type()) names.append(text(value.name()));
    }
  }
  return names;
}

template <typename Entries>
py::dict dictionary(const Entries& entries) {
  py::dict result;
  for (const auto& entry : entries) result[text(entry.key())] = text(entry.value());
  return result;
}

// Gives the fields of backend.ModelInfo.
py::dict describe_model(const PythonModel& model) {
  const onnx::ModelProto& proto = model.proto();
  py::dict info;
  info["ir_version"] = proto.ir_version();
  py::dict imports;
  for (const auto& [domain, version] : opsets_of(proto)) imports[text(domain)] = version;
  info["opset_imports"] = imports;
  info["producer_name"] = text(proto.producer_name());
  info["producer_version"] = text(proto.producer_version());
  info["domain"] = text(proto.domain());
  info["model_version"] = proto.model_version();
  info["doc_string"] = text(proto.doc_string());
  info["graph_name"] = text(proto.graph().name());
  info["graph_doc_string"] = text(proto.graph().doc_string());
  return info;
}

py::dict metadata(const PythonModel& model) { return dictionary(model.proto().metadata_props()); }

py::dict quantization_annotations(const PythonModel& model) {
  py::dict annotations;
  for (const auto& annotation : model.proto().graph().quantization_annotation()) {
    annotations[text(annotation.tensor_name())] = dictionary(annotation.quant_parameter_tensor_names());
  }
  return annotations;
}

// Gives the names of the values that the nodes of the main graph give.
py::list value_names(const PythonModel& model) {
  py::list names;
  for (const auto& node : model.proto().graph().node()) {
    for (const std::string& name : node.output()) {
      if (!name.empty()) names.append(text(name));
    }
  }
  return names;
}

// Gives (operator, name, domain, opset version, why, whether an operator is not supported) of all that stands against a
// model.
py::list describe_problems(const std::vector<Problem>& problems) {
  py::list described;
  for (const auto& [node, why, unsupported] : problems) {
    described.append(py::make_tuple(text(node.op_type), text(node.name), text(node.domain), node.version,
                                    text(shortened(why)), unsupported));
  }
  return described;
}

// Gives (domain, operator, since version, deprecated, how it is translated) of every version of every operator.
py::list versions() {
  py::list rows;
  for (const OperatorSchema& schema : all_schemas()) {
    const bool listed = registry().find(schema.domain, schema.name, schema.since_version) != nullptr;
    const char* how = listed ? "table" : is_translated(schema) ? "function body" : "";
    rows.append(py::make_tuple(schema.domain, schema.name, schema.since_version, schema.deprecated, how));
  }
  return rows;
}

py::list table() {
  py::list rows;
  for (const Registry::Row& row : registry().rows()) {
    rows.append(py::make_tuple(row.domain, row.op, row.since, row.reviewed_to));
  }
  return rows;
}

py::list experimental() {
  py::list operators;
  for (const OperatorSchema& schema : experimental_schemas())
    operators.append(py::make_tuple(schema.domain, schema.name));
  return operators;
}

// A recording in Python, by an object with the methods of one.
class PythonRecording : public Recording {
 public:
  explicit PythonRecording(py::object object) : object_(shared(std::move(object))) {}

  void record(const Work& work) override {
    const WithGil gil;
    call("record", work);
  }
  void replay(const Work& before, const Work& after) override {
    const WithGil gil;
    call("replay", before, after);
  }
  double seconds_of(const Work& work) override {
    const WithGil gil;
    return call("seconds_of", work).cast<double>();
  }

 private:
  // Calls a method with pieces of work. An exception that one of them throws comes out as it was.
  template <typename... Works>
  py::object call(const char* method, const Works&... works) {
    std::exception_ptr thrown;
    const auto callable = [&thrown](const Work& work) {
      return py::cpp_function(
          [&] {
            try {
              work();
            } catch (...) {
              thrown = std::current_exception();
              throw;
            }
          },
          py::call_guard<WithoutGil>());
    };
    try {
      return object_->attr(method)(callable(works)...);
    } catch (const py::error_already_set&) {
      if (thrown) std::rethrow_exception(thrown);
      throw;
    }
  }

  std::shared_ptr<py::object> object_;
};

void assume_python_recordings(const py::object& make, const py::object& is_at_work) {
  if (make.is_none()) return assume_recorder({});
  assume_recorder(Recorder{.make = [held = shared(make)](c10::Device device) -> std::unique_ptr<Recording> {
                             const WithGil gil;
                             return std::make_unique<PythonRecording>((*held)(device.index()));
                           },
                           .is_at_work =
                               [held = shared(is_at_work)](c10::Device device) {
                                 const WithGil gil;
                                 return (*held)(device.index()).cast<bool>();
                               }});
}

}  // namespace

PYBIND11_MODULE(_C, m, py::mod_gil_not_used()) {
  py::register_local_exception_translator(translate_exception);
  register_pending_errors(take_python_error);
  Py_AtExit(let_work_go_on_at_exit);  // this is when the interpreter has ended

  py::class_<Options>(m, "Options")
      .def(py::init([](std::string device, std::string precision, bool tf32, std::optional<bool> cuda_graphs,
                       bool optimize, std::set<std::string> disabled_passes, int threads,
                       std::map<std::string, int64_t> shapes, const std::map<std::string, double>& limits,
                       std::string allow_aten, std::string links, bool map_external, int plans,
                       std::set<std::string> last_only) {
             return Options{std::move(device),
                            std::move(precision),
                            tf32,
                            cuda_graphs,
                            optimize,
                            std::move(disabled_passes),
                            threads,
                            std::move(shapes),
                            limits_of(limits),
                            std::move(allow_aten),
                            std::move(links),
                            map_external,
                            plans,
                            std::move(last_only)};
           }),
           py::kw_only(), py::arg("device") = "CPU", py::arg("precision") = "float32", py::arg("tf32") = false,
           py::arg("cuda_graphs") = py::none(), py::arg("optimize") = true,
           py::arg("disabled_passes") = std::set<std::string>(), py::arg("threads") = 0,
           py::arg("shapes") = std::map<std::string, int64_t>(), py::arg("limits") = std::map<std::string, double>(),
           py::arg("allow_aten") = "checked", py::arg("links") = "follow", py::arg("map_external") = false,
           py::arg("plans") = 8, py::arg("last_only") = std::set<std::string>());

  py::class_<StopFlag, std::shared_ptr<StopFlag>>(m, "StopFlag", "Stops the runs that are given it, from any thread.")
      .def(py::init())
      .def_property(
          "set", [](const StopFlag& flag) { return flag.set.load(); },
          [](StopFlag& flag, bool set) { flag.set = set; });

  py::class_<PythonModel, std::shared_ptr<PythonModel>>(m, "PreparedModel")
      .def_static(
          "from_bytes",
          [](const py::bytes& bytes, const std::string& directory, const Options& options, const py::list& laid,
             const py::object& external) {
            const auto view = static_cast<std::string_view>(bytes);
            const ExternalReader reader = reader_from_python(external);
            return prepare(
                options, [&] { return ModelFile::from_bytes(view, directory, reader); }, weights_from_python(laid));
          },
          py::arg("bytes"), py::arg("directory"), py::arg("options"), py::arg("laid_weights") = py::list(),
          py::arg("external") = py::none())
      .def_static(
          "from_path",
          [](const std::string& path, const std::string& directory, const Options& options,
             const py::object& external) {
            const ExternalReader reader = reader_from_python(external);
            return prepare(options, [&] { return ModelFile::from_path(path, directory, reader); });
          },
          py::arg("path"), py::arg("directory"), py::arg("options"), py::arg("external") = py::none())
      .def(
          "replica",
          [](const PythonModel& model, const Options& options) {
            return prepare(options, [&] { return model.file(); });
          },
          py::arg("options"), "The same model prepared with other options.")
      .def(
          "run",
          [](const PythonModel& model, const py::dict& feeds, std::vector<std::string> names,
             std::optional<bool> as_torch, const py::object& stop, const py::object& out) {
            // A pointer in this place takes pybind11 as long as all other arguments, where it is None.
            const auto* flag = stop.is_none() ? nullptr : stop.cast<const StopFlag*>();
            return run(model, feeds, std::move(names), as_torch, flag, nullptr, out);
          },
          py::arg("feeds"), py::arg("output_names") = std::vector<std::string>(), py::arg("as_torch") = py::none(),
          py::arg("stop") = py::none(), py::arg("out") = py::none(),
          "Runs the model on a dictionary of inputs: a list of the values named, or of the model's outputs. They are "
          "torch tensors or numpy arrays; by default torch tensors where one goes in. Of the list `out`, of the "
          "caller's "
          "arrays or tensors for them, those that hold their outputs come back themselves.")
      .def("trim", &PythonModel::trim, py::call_guard<WithoutGil>(),
           "Gives back to the system the memory that runs have left for later ones.")
      .def("profile", &profile, py::arg("feeds"), py::arg("output_names") = std::vector<std::string>(),
           py::arg("as_torch") = py::none(), py::arg("stop") = nullptr)
      .def_property_readonly("laid_weights",
                             [](const PythonModel& model) { return weights_to_python(saved_weights(model.program())); })
      .def_property_readonly("steps", &describe_steps)
      .def_property_readonly("graph_inputs",
                             [](const PythonModel& model) { return describe_graph_inputs(model.program()); })
      .def_property_readonly("nodes", [](const PythonModel& model) { return describe_nodes(model.nodes()); })
      .def_property_readonly("placement", &describe_placement, "(where, why) of each of the nodes.")
      .def("serialized", [](const PythonModel& model) { return py::bytes(model.serialized()); })
      .def_property_readonly("value_names", &value_names)
      .def_property_readonly("inputs", &describe_inputs, "(name, type, shape, has_default) of each input.")
      .def_property_readonly("outputs", &describe_outputs, "(name, type) of each output.")
      .def_property_readonly("output_shapes", &output_shapes,
                             "The shape that the model declares for each output, or None.")
      .def_property_readonly("sparse_values", &sparse_values,
                             "The names of inputs and outputs that are declared as sparse tensors.")
      .def_property_readonly("metadata", &metadata)
      .def_property_readonly("model_info", &describe_model)
      .def_property_readonly("quantization_annotations", &quantization_annotations)
      .def(
          "plan_texts", [](const PythonModel& model) { return model.plan_texts(); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "graph_text", [](const PythonModel& model) { return text(model.graph_text()); },
          "The TorchScript graph as text.");

  bind_export(m);
  bind_language(m);
  m.attr("NEWEST_IR_VERSION") = static_cast<int>(onnx::Version::IR_VERSION);
  m.def(
      "check_device", [](const std::string& device) { available_device(device); },
      "Raises DeviceError where a device is absent.");
  m.def("cuda_device_count", &cuda_device_count);
  m.def(
      "processor_quota", [](const std::string& root) { return processor_quota(root); }, py::arg("root"),
      "The quota of this process's cgroup, in processors; `root` is where the files of the system are.");
  m.def("manual_seed", [](int64_t seed) { at::manual_seed(static_cast<uint64_t>(seed)); }, "Seeds torch's generators.");
  if (std::getenv("ONNX_TORCH_TEST_HOOKS") != nullptr) {  // tests/python/conftest.py sets it
    m.def("assume_cuda_devices", &assume_cuda_devices, py::arg("count"),
          "Takes so many CUDA devices to be there, for tests that answer ATen's calls themselves.");
    m.def("assume_recordings", &assume_python_recordings, py::arg("make"), py::arg("is_at_work"),
          "Has make(index of the device) give the recordings for CUDA, and is_at_work(index) tell of others', for "
          "tests; None: as it was.");
  }
  m.def(
      "waits",
      [] {
        std::vector<std::pair<std::string, std::string>> all;
        for (const Wait& wait : waits()) all.emplace_back(wait.name, wait.what);
        return all;
      },
      "The operators of a graph at which the host waits for the device, and for what, besides the host's work.");
  m.def(
      "host_work",
      [] {
        std::vector<std::pair<std::string, std::string>> work;
        for (const HostWork& item : host_work()) work.emplace_back(item.name, item.what);
        return work;
      },
      "The operators of a graph that run on the host whatever the device, and what each is.");
  m.def("is_tensor", [](py::handle object) { return is_tensor(object.ptr()); }, "Whether it is a torch tensor.");
  m.def("is_torch_like", &is_torch_like,
        "Whether it is a torch tensor, speaks DLPack as one does, or is a list that holds such.");
  m.def("layouts_version", &layouts_version, "What the layouts of laid_weights depend on, besides the CPU.");
  m.def(
      "passes",
      [](const std::string& device) {
        std::vector<std::pair<std::string, std::string>> passes;
        for (const Pass& pass : optional_passes_for(available_device(device)))
          passes.emplace_back(pass.name, pass.what);
        return passes;
      },
      "The name of each pass that a model goes through for a device, and what it does.");
  m.def(
      "check_model", [](const std::string& bytes) { check(ModelFile::from_bytes(bytes)->proto); },
      "Raises where a model cannot be translated.");
  m.def(
      "register_operator",
      [](const std::string& domain, const std::string& op, int64_t since_version, const std::string& torch_name) {
        register_operator(domain, op, since_version, torch_operator(torch_name));
      },
      py::arg("domain"), py::arg("op_type"), py::arg("since_version"), py::arg("torch_name"));
  m.def(
      "cpu_features",
      [] {
        const CpuFeatures& has = cpu_features();
        py::dict features;
        features["vectors"] = has.vectors == CpuFeatures::Vectors::Avx512 ? "AVX512"
                              : has.vectors == CpuFeatures::Vectors::Avx2 ? "AVX2"
                                                                          : "default";
        features["int8_products"] = has.int8_products;
        features["bfloat16_products"] = has.bfloat16_products;
        return features;
      },
      "Which instructions the ways taken on this CPU may use.");
  m.def("load_library", [](const std::string& path) { load_library(path); }, py::arg("path"));
  m.def("problems",
        [](const std::string& bytes) { return describe_problems(problems(ModelFile::from_bytes(bytes)->proto)); });
  m.def("translation_problems",
        [](const py::bytes& bytes, const std::string& directory, const Options& options, const py::object& external) {
          const auto view = static_cast<std::string_view>(bytes);
          const auto file = ModelFile::from_bytes(view, directory, reader_from_python(external));
          return describe_problems(translation_problems(file, translate_options(options)));
        });
  m.def(
      "external_bytes",
      [](const py::bytes& message, const std::string& directory, const py::object& external, const Options& options) {
        onnx::TensorProto tensor;
        if (!tensor.ParseFromString(static_cast<std::string>(message))) throw InvalidModelError("it is no tensor");
        check_options(options, c10::kCPU);
        const ExternalData data(directory, nullptr, nullptr, reader_from_python(external));
        return py::bytes(data.read(tensor, data_size(tensor), translate_options(options).external).view);
      },
      py::arg("tensor"), py::arg("directory"), py::arg("external"), py::arg("options"),
      "The external data of a TensorProto.");
  m.def(
      "no_model",
      [](const std::string& file_is, const py::bytes& beginning) {
        return no_model(file_is, std::string_view(beginning));
      },
      py::arg("file_is"), py::arg("beginning"), "Says that a file is no model, and what it is.");
  m.def("operator_versions", &versions);
  m.def("translation_table", &table, "(domain, operator, since versions, reviewed to) of each translated operator.");
  m.def(
      "checked_aten_operators",
      [] {
        const auto names = checked_operators();
        return std::vector<std::string>(names.begin(), names.end());
      },
      "The names, after aten::, of the operators that ATen nodes may call.");
  m.def("experimental_operators", &experimental, "(domain, operator) of those that the standard has no version 1 of.");
  m.def(
      "why_refused",
      [](const std::string& domain, const std::string& op) { return std::string(why_refused(domain, op)); },
      "Why an operator that is known is not translated; empty where nothing is known of it.");
  make_ready();
}
