#include "language.h"

#include <ATen/ATen.h>
#include <pybind11/stl.h>

#include <memory>

#include "interruption.h"
#include "language/layout.h"
#include "language/model_folder.h"
#include "language/parts.h"
#include "language/processors.h"
#include "language/search.h"
#include "language/sequences.h"
#include "numpy_values.h"
#include "onnx_torch/language_model.h"
#include "run.h"
#include "shared_object.h"
#include "text.h"
#include "torch_values.h"

namespace py = pybind11;

namespace onnxtorch {
namespace {

at::Tensor tensor_of(const py::object& object, ElementType type, const char* name) {
  if (object.is_none()) return {};
  const auto strings = c10::make_intrusive<StringPool>();
  Feeder feeder(*strings);
  const Fed fed = feeder(object, InputSpec{name, ValueType::tensor(type), {}, false});
  if (!fed.value.isTensor()) throw InputError(std::string(name) + " must be a tensor");
  return fed.value.toTensor().clone();  // the feeder's arrays go
}

py::object to_python(const at::Tensor& tensor, ElementType type, bool as_torch) {
  const auto strings = c10::make_intrusive<StringPool>();
  return value_to_python(tensor, ValueType::tensor(type), *strings, as_torch ? Form::Torch : Form::Numpy);
}

// Makes a processor of a function of Python's, (sequences, scores) → scores, on arrays or tensors.
LogitsProcessor processor_from_python(const py::object& function, bool as_torch) {
  return [held = shared(function), as_torch](const std::vector<Tokens>& sequences, const at::Tensor& scores) {
    const WithGil gil;
    const py::object given = to_python(padded(sequences, Side::Left).ids, ElementType::Int64, as_torch);
    // The function gets a copy of its own, as it may write there.
    const py::object result = (*held)(given, to_python(scores.clone(), ElementType::Float, as_torch));
    return tensor_of(result, ElementType::Float, "scores").to(at::kCPU, at::kFloat);
  };
}

GenerationOptions::EarlyStopping early_stopping_of(const py::handle& value) {
  using EarlyStopping = GenerationOptions::EarlyStopping;
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? EarlyStopping::True : EarlyStopping::False;
  if (py::isinstance<py::str>(value) && value.cast<std::string>() == "never") return EarlyStopping::Never;
  throw InputError("early_stopping must be True, False or \"never\"");
}

using Setter = std::function<void(GenerationOptions&, const py::handle&)>;

template <typename T>
Setter setter(T GenerationOptions::* member) {
  return [member](GenerationOptions& options, const py::handle& value) { options.*member = value.cast<T>(); };
}

const std::map<std::string, Setter>& setters() {
  using O = GenerationOptions;
  static const std::map<std::string, Setter> all = {
      {"max_new_tokens", setter(&O::max_new_tokens)},
      {"min_new_tokens", setter(&O::min_new_tokens)},
      {"max_length", setter(&O::max_length)},
      {"eos_token_id", setter(&O::eos_token_ids)},
      {"pad_token_id", setter(&O::pad_token_id)},
      {"do_sample", setter(&O::do_sample)},
      {"temperature", setter(&O::temperature)},
      {"top_k", setter(&O::top_k)},
      {"top_p", setter(&O::top_p)},
      {"min_p", setter(&O::min_p)},
      {"typical_p", setter(&O::typical_p)},
      {"epsilon_cutoff", setter(&O::epsilon_cutoff)},
      {"eta_cutoff", setter(&O::eta_cutoff)},
      {"seed", setter(&O::seed)},
      {"repetition_penalty", setter(&O::repetition_penalty)},
      {"no_repeat_ngram_size", setter(&O::no_repeat_ngram_size)},
      {"suppress_tokens", setter(&O::suppress_tokens)},
      {"begin_suppress_tokens", setter(&O::begin_suppress_tokens)},
      {"forced_bos_token_id", setter(&O::forced_bos_token_id)},
      {"forced_eos_token_id", setter(&O::forced_eos_token_ids)},
      {"num_beams", setter(&O::num_beams)},
      {"length_penalty", setter(&O::length_penalty)},
      {"num_assistant_tokens", setter(&O::num_assistant_tokens)},
      {"assistant_model",
       [](O& options, const py::handle& value) {
         options.assistant_model = std::make_shared<const LanguageModel>(value.cast<const LanguageModel&>());
       }},
      {"num_return_sequences", setter(&O::num_return_sequences)},
      {"early_stopping",
       [](O& options, const py::handle& value) { options.early_stopping = early_stopping_of(value); }},
      {"stop",
       [](O& options, const py::handle& value) {
         options.stop = [held = shared(py::reinterpret_borrow<py::object>(value))](const Tokens& sequence) {
           const WithGil gil;
           return (*held)(sequence).cast<bool>();
         };
       }},
  };
  return all;
}

GenerationOptions options_of(const py::dict& given, const py::list& processors, bool as_torch) {
  GenerationOptions options;
  for (const auto& [name, value] : given) {
    const auto known = setters().find(name.cast<std::string>());
    if (known == setters().end()) throw InputError("there is no option \"" + name.cast<std::string>() + "\"");
    try {
      known->second(options, value);
    } catch (const py::cast_error&) {
      throw InputError(py::str("{} cannot be {!r}").format(name, value));
    }
  }
  for (const py::handle& processor : processors) {
    options.logits_processors.push_back(processor_from_python(py::reinterpret_borrow<py::object>(processor), as_torch));
  }
  return options;
}

Prompt prompt_of(std::vector<Tokens> ids, std::vector<Tokens> encoder_ids, const py::dict& encoder_inputs) {
  Prompt prompt{std::move(ids), std::move(encoder_ids), {}};
  for (const auto& [name, value] : encoder_inputs) {
    const std::string text = name.cast<std::string>();
    const auto object = py::reinterpret_borrow<py::object>(value);
    prompt.encoder_inputs[text] = tensor_of(object, ElementType::Undefined, text.c_str());
  }
  return prompt;
}

using Model = std::shared_ptr<PythonModel>;

LanguageModel language_model(const Model& decoder, const Model& with_past, const Model& encoder,
                             std::map<std::string, std::string> inputs, std::map<std::string, std::string> outputs) {
  const Mapping mapping{std::move(inputs), std::move(outputs)};
  std::optional<Decoder> next;
  if (with_past) next.emplace(with_past, mapping);
  std::optional<Encoder> encodes;
  if (encoder) encodes.emplace(encoder);
  return LanguageModel(make_parts(Decoder(decoder, mapping), std::move(next), std::move(encodes)));
}

py::list describe_caches(const LanguageModel& model) {
  py::list described;
  for (const CacheEntry& entry : model.layout().caches) {
    described.append(py::make_tuple(text(entry.name), text(entry.past), text(entry.present), entry.batch_axis,
                                    entry.sequence_axis, entry.of_encoder));
  }
  return described;
}

py::dict dictionary(const std::map<std::string, std::string>& names) {
  py::dict result;
  for (const auto& [role, name] : names) result[text(role)] = text(name);
  return result;
}

py::object append(GenerationState& state, const py::object& ids, const py::object& mask, bool all) {
  const at::Tensor tokens = tensor_of(ids, ElementType::Int64, "ids").to(at::kLong);
  const at::Tensor of_padding = tensor_of(mask, ElementType::Int64, "attention_mask");
  const at::Tensor logits =
      without_gil([&] { return all ? state.append_all(tokens, of_padding) : state.append(tokens, of_padding); });
  return to_python(logits, ElementType::Float, is_torch_like(ids));
}

Choice choice(const py::dict& given, const py::list& processors, bool as_torch, const Tokens& prompt) {
  const GenerationOptions options = options_of(given, processors, as_torch);
  check_options(options);
  return Choice(options, {prompt}, generator_of(options));
}

GenerationState join(const std::vector<std::pair<const GenerationState*, std::vector<int64_t>>>& given) {
  std::vector<GenerationState::Rows> parts;
  for (const auto& [state, rows] : given) parts.push_back({state, rows});
  return without_gil([&] { return GenerationState::join(parts); });
}

// Gives the sequences of Python's; empty ones where no rule asks for them, as there may be many tokens.
std::vector<Tokens> sequences_for(const Choice& choice, const py::sequence& sequences) {
  if (read_sequences(choice.options())) return sequences.cast<std::vector<Tokens>>();
  return std::vector<Tokens>(sequences.size());
}

at::Tensor scores_of(const py::object& scores, const std::vector<Tokens>& sequences) {
  const at::Tensor given = tensor_of(scores, ElementType::Float, "scores");
  if (given.dim() != 2 || given.size(0) != static_cast<int64_t>(sequences.size())) {
    throw InputError("scores must be [sequences, vocabulary]");
  }
  return given;
}

// Gives what the action gives. An exception that a function of Python's has raised meanwhile comes out as it was.
template <typename Action>
auto python_errors(const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    const auto* const nested = dynamic_cast<const std::nested_exception*>(&error);
    if (!nested) throw;
    try {
      nested->rethrow_nested();
    } catch (const py::error_already_set&) {
      throw;
    } catch (...) {
    }
    throw;
  }
}

}  // namespace

void bind_language(py::module_& m) {
  m.def(
      "find_language_model",
      [](const std::string& path) {
        const ModelFolder found = find_model(path);
        const auto named = [](const std::optional<std::filesystem::path>& file) {
          return file ? std::optional(file->string()) : std::nullopt;
        };
        return py::make_tuple(found.decoder.string(), named(found.with_past), named(found.encoder));
      },
      py::arg("path"), "The files of the decoder, of the decoder that takes a past, and of the encoder.");
  m.def(
      "logits_names", [](std::map<std::string, std::string> outputs) { return logits_names({{}, std::move(outputs)}); },
      py::arg("outputs"), "The names that an output has which is the logits for sure.");

  py::class_<GenerationState>(m, "GenerationState")
      .def_property_readonly("batch_size", &GenerationState::batch_size)
      .def_property_readonly("length", &GenerationState::length)
      .def_property_readonly("tokens", &GenerationState::tokens)
      .def_property_readonly("max_length", &GenerationState::max_length)
      .def("append", &append, py::arg("ids"), py::arg("attention_mask") = py::none(), py::arg("all") = false)
      .def("rewind", &GenerationState::rewind, py::arg("count"), py::call_guard<WithoutGil>())
      .def("fork", &GenerationState::fork)
      .def_static("join", &join, py::arg("parts"), "A state of these rows of other states, (state, rows) each.")
      .def("reorder", &GenerationState::reorder, py::arg("rows"), py::call_guard<WithoutGil>());

  py::class_<Generation>(m, "Generation")
      .def_property_readonly("done", &Generation::done)
      .def_property_readonly("sequences", &Generation::sequences)
      .def("step", [](Generation& generation) {
        return python_errors([&] { return without_gil([&] { return generation.step(); }); });
      });

  py::class_<Choice>(m, "Choice")
      .def(py::init(&choice), py::arg("options"), py::arg("processors") = py::list(), py::arg("as_torch") = false,
           py::arg("prompt") = Tokens())
      .def(
          "process",
          [](const Choice& choice, const py::sequence& given_sequences, const py::object& scores) {
            const std::vector<Tokens> sequences = sequences_for(choice, given_sequences);
            const at::Tensor given = scores_of(scores, sequences);
            const at::Tensor processed = without_gil([&] { return choice.process(sequences, given); });
            return to_python(processed, ElementType::Float, is_torch_like(scores));
          },
          py::arg("sequences"), py::arg("scores"), "The scores, as the options change them.")
      .def(
          "choose",
          [](const Choice& choice, const py::sequence& given_sequences, const py::object& scores) {
            const std::vector<Tokens> sequences = sequences_for(choice, given_sequences);
            const at::Tensor given = scores_of(scores, sequences);
            return python_errors(
                [&] { return without_gil([&] { return choice.choose(choice.process(sequences, given)); }); });
          },
          py::arg("sequences"), py::arg("scores"), "A token for each sequence.");

  py::class_<LanguageModel>(m, "LanguageModel")
      .def(py::init(&language_model), py::arg("decoder"), py::arg("with_past"), py::arg("encoder"), py::arg("inputs"),
           py::arg("outputs"))
      .def_property_readonly("has_encoder", &LanguageModel::has_encoder)
      .def_property_readonly("takes_lengths", &LanguageModel::takes_lengths)
      .def_property_readonly("inputs", [](const LanguageModel& model) { return dictionary(model.layout().inputs); })
      .def_property_readonly("outputs", [](const LanguageModel& model) { return dictionary(model.layout().outputs); })
      .def_property_readonly("caches", &describe_caches,
                             "(name, past, present, batch axis, sequence axis or -1, of the encoder) of each.")
      .def_property_readonly("layout", [](const LanguageModel& model) { return text(model.layout().str()); })
      .def(
          "start",
          [](const LanguageModel& model, std::vector<Tokens> ids, std::vector<Tokens> encoder_ids,
             const py::dict& encoder_inputs, std::optional<int64_t> max_length) {
            const Prompt prompt = prompt_of(std::move(ids), std::move(encoder_ids), encoder_inputs);
            return without_gil([&] { return model.start(prompt, max_length); });
          },
          py::arg("ids"), py::arg("encoder_ids"), py::arg("encoder_inputs"), py::arg("max_length") = py::none())
      .def(
          "generation",
          [](const LanguageModel& model, std::vector<Tokens> ids, std::vector<Tokens> encoder_ids,
             const py::dict& encoder_inputs, const py::dict& options, const py::list& processors, bool as_torch,
             const GenerationState* prefix) {
            const Prompt prompt = prompt_of(std::move(ids), std::move(encoder_ids), encoder_inputs);
            const GenerationOptions chosen = options_of(options, processors, as_torch);
            return python_errors([&] { return without_gil([&] { return model.generation(prompt, chosen, prefix); }); });
          },
          py::arg("ids"), py::arg("encoder_ids"), py::arg("encoder_inputs"), py::arg("options"), py::arg("processors"),
          py::arg("as_torch"), py::arg("prefix"));
}

}  // namespace onnxtorch
