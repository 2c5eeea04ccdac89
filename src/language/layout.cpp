#include "language/layout.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

#include "base/element_type.h"

namespace onnxtorch {
namespace {

// The inputs of a step besides caches, with the names that exporters have for each. The first is that of Layout.
const std::vector<std::vector<std::string>> kInputs = {
    {"input_ids", "decoder_input_ids", "ids", "tokens", "token_ids"},
    {"attention_mask", "decoder_attention_mask", "mask"},
    {"position_ids", "decoder_position_ids", "positions", "cache_position"},
    {"use_cache_branch"},
    {"encoder_hidden_states", "encoder_outputs"},
    {"encoder_attention_mask"},
    {"total_sequence_length", "total_seq_len"},
    {"past_sequence_length", "past_seq_len"},
    {"seqlens_k"},
    {"num_logits_to_keep", "logits_to_keep"},
};

constexpr const char* kLogits[] = {"logits", "lm_logits"};

// Gives what a past has in common with its present: the words of its name but those that tell the one from the other.
// "past_key_values.0.key" and "present.0.key" are both "0.key".
std::string common_name(const std::string& name) {
  static const std::set<std::string> kDropped = {"past", "present", "new", "updated", "in", "out", "input", "output"};
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  std::string joined;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) continue;
    if (kDropped.contains(words[i])) {
      const bool of_key_values = i + 2 < words.size() && words[i + 1] == "key" && words[i + 2].starts_with("value");
      if (of_key_values) i += 2;
      continue;
    }
    joined += (joined.empty() ? "" : ".") + words[i];
  }
  return joined;
}

bool is_integer(const ValueType& type) {
  return type.kind == ValueType::Kind::Tensor &&
         (type.element == ElementType::Int64 || type.element == ElementType::Int32);
}

bool is_floating_tensor(const ValueType& type) {
  return type.kind == ValueType::Kind::Tensor && is_floating(type.element);
}

template <typename Spec>
std::optional<size_t> rank(const Spec& spec) {
  return spec.dims ? std::optional(spec.dims->size()) : std::nullopt;
}

std::string described(const InputSpec& input) {
  std::string text = "\"" + input.name + "\" (" + input.type.str();
  if (input.dims) {
    text += " of shape [";
    for (const Dim& dim : *input.dims) {
      if (&dim != input.dims->data()) text += ", ";
      text += dim.size >= 0 ? std::to_string(dim.size) : dim.symbol.empty() ? "?" : dim.symbol;
    }
    text += ']';
  }
  return text + ')';
}

template <typename Spec>
const Spec* named(const std::vector<Spec>& specs, const std::string& name) {
  const auto found = std::ranges::find(specs, name, &Spec::name);
  return found == specs.end() ? nullptr : &*found;
}

class Finder {
 public:
  Finder(const std::vector<InputSpec>& inputs, const std::vector<OutputSpec>& outputs, const Mapping& mapping)
      : inputs_(inputs), outputs_(outputs), mapping_(mapping) {}

  Layout find() {
    take_mapping();
    for (const auto& names : kInputs) take_input(names);
    if (!layout_.inputs.contains("input_ids")) take_ids_by_shape();
    take_logits();
    pair_by_name();
    pair_in_order();
    refuse_others();
    for (CacheEntry& entry : layout_.caches) {
      if (!entry.past.empty()) find_axes(entry, *named(inputs_, entry.past));
    }
    return std::move(layout_);
  }

 private:
  static bool is_known(const std::string& role) {
    return std::ranges::any_of(kInputs, [&](const auto& names) { return names.front() == role; });
  }

  void take_mapping() {
    std::map<std::string, CacheEntry> caches;
    for (const auto& [role, name] : mapping_.inputs) {
      if (!named(inputs_, name)) throw InputError("the model has no input \"" + name + "\", which inputs= names");
      if (role.starts_with("past.")) {
        caches[role.substr(5)].past = name;
      } else if (is_known(role)) {
        layout_.inputs[role] = name;
      } else {
        throw InputError("inputs= has no \"" + role + "\"; there are " + known_roles());
      }
      taken_.insert(name);
    }
    for (const auto& [role, name] : mapping_.outputs) {
      if (!named(outputs_, name)) throw InputError("the model has no output \"" + name + "\", which outputs= names");
      if (role.starts_with("present.")) {
        caches[role.substr(8)].present = name;
      } else if (role == "logits") {
        layout_.outputs[role] = name;
      } else {
        throw InputError("outputs= has no \"" + role + "\"; there are logits and present.NAME");
      }
      given_.insert(name);
    }
    for (auto& [name, entry] : caches) {
      entry.name = name;
      if (entry.past.empty() || entry.present.empty()) {
        throw InputError(std::string("past.").append(name) + " of inputs= and present." + name +
                         " of outputs= belong together");
      }
      layout_.caches.push_back(entry);
    }
  }

  void take_input(const std::vector<std::string>& names) {
    if (layout_.inputs.contains(names.front())) return;
    for (const std::string& name : names) {
      if (!named(inputs_, name) || taken_.contains(name)) continue;
      layout_.inputs[names.front()] = name;
      taken_.insert(name);
      return;
    }
  }

  // Takes the only integers of rank 2 that are nothing else.
  void take_ids_by_shape() {
    std::vector<std::string> fitting;
    for (const InputSpec& input : inputs_) {
      if (!taken_.contains(input.name) && !input.has_default && is_integer(input.type) && rank(input) == 2) {
        fitting.push_back(input.name);
      }
    }
    if (fitting.size() != 1) {
      throw InputError("no input of the model can be told to be the tokens; say which: inputs={\"input_ids\": …}");
    }
    layout_.inputs["input_ids"] = fitting[0];
    taken_.insert(fitting[0]);
  }

  // Takes the logits by their name, or else the first output that may be a floating tensor of rank 3.
  void take_logits() {
    if (layout_.outputs.contains("logits")) return;
    const auto fits = [&](const OutputSpec& output) {
      return !given_.contains(output.name) && (!output.type.known() || is_floating_tensor(output.type)) &&
             rank(output).value_or(3) == 3;
    };
    const OutputSpec* found = nullptr;
    for (const char* name : kLogits) found = found ? found : named(outputs_, name);
    if (!found) {
      const auto first = std::ranges::find_if(outputs_, fits);
      if (first == outputs_.end()) {
        throw InputError("no output of the model can be told to be the logits; say which: outputs={\"logits\": …}");
      }
      found = &*first;
    }
    layout_.outputs["logits"] = found->name;
    given_.insert(found->name);
  }

  std::vector<const InputSpec*> open_inputs() const {
    std::vector<const InputSpec*> open;
    for (const InputSpec& input : inputs_) {
      if (!taken_.contains(input.name) && !input.has_default) open.push_back(&input);
    }
    return open;
  }

  std::vector<const OutputSpec*> open_outputs() const {
    std::vector<const OutputSpec*> open;
    for (const OutputSpec& output : outputs_) {
      if (!given_.contains(output.name)) open.push_back(&output);
    }
    return open;
  }

  void add(const std::string& name, const InputSpec* past, const OutputSpec* present) {
    CacheEntry entry;
    entry.name = name;
    if (past) taken_.insert(entry.past = past->name);
    if (present) given_.insert(entry.present = present->name);
    entry.of_encoder = name.find("encoder") != std::string::npos || name.find("cross") != std::string::npos;
    layout_.caches.push_back(std::move(entry));
  }

  // Pairs by name the pasts and presents of one model, and notes pasts that are alone, as only one of two models may
  // have either: decoder_model.onnx gives presents and takes no past.
  void pair_by_name() {
    std::map<std::string, const OutputSpec*> presents;
    for (const OutputSpec* output : open_outputs()) {
      const bool is_present = output->name.find("present") != std::string::npos;
      if (is_present || !output->type.known() || is_floating_tensor(output->type)) {
        presents.emplace(common_name(output->name), output);
      }
    }
    for (const InputSpec* input : open_inputs()) {
      if (!is_floating_tensor(input->type)) continue;
      const std::string name = common_name(input->name);
      const auto present = presents.find(name);
      if (name.empty() || present == presents.end()) {
        if (input->name.starts_with("past")) lone_pasts_.push_back(input);
        continue;
      }
      add(name, input, present->second);
    }
  }

  // Pairs what is left, where there are as many of both, as torch's dynamo gives outputs any names. Else takes presents
  // alone that have that word in their names, and pasts likewise.
  void pair_in_order() {
    std::vector<const InputSpec*> pasts;
    std::ranges::copy_if(open_inputs(), std::back_inserter(pasts),
                         [](const InputSpec* input) { return is_floating_tensor(input->type); });
    const std::vector<const OutputSpec*> presents = open_outputs();
    if (pasts.size() == presents.size()) {
      for (size_t i = 0; i < pasts.size(); ++i) add(common_name(pasts[i]->name), pasts[i], presents[i]);
      return;
    }
    for (const InputSpec* past : lone_pasts_) add(common_name(past->name), past, nullptr);
    for (const OutputSpec* present : presents) {
      if (present->name.find("present") != std::string::npos) add(common_name(present->name), nullptr, present);
    }
  }

  void refuse_others() const {
    const std::vector<const InputSpec*> others = open_inputs();
    if (others.empty()) return;
    throw InputError("what the input " + described(*others[0]) +
                     " is cannot be told from its name and shape; say it by inputs={ROLE: \"" + others[0]->name +
                     "\"}, where ROLE is one of " + known_roles());
  }

  static std::string known_roles() {
    std::string text;
    for (const auto& names : kInputs) text += names.front() + ", ";
    return text + "past.NAME";
  }

  // Finds the axes of a past. The batch is where the tokens' is, and what else is open grows.
  void find_axes(CacheEntry& entry, const InputSpec& past) const {
    if (!past.dims) {
      throw InputError("the model does not tell the shape of its input \"" + past.name +
                       "\", so that an empty cache cannot be made");
    }
    const std::vector<Dim>& dims = *past.dims;
    const InputSpec& ids = *named(inputs_, layout_.inputs.at("input_ids"));
    const Dim batch = ids.dims && !ids.dims->empty() ? ids.dims->front() : Dim{};
    std::vector<int64_t> open;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].size < 0) open.push_back(static_cast<int64_t>(i));
    }
    const auto same = std::ranges::find_if(dims, [&](const Dim& dim) {
      return batch.size >= 0 ? dim.size == batch.size
                             : dim.size < 0 && !batch.symbol.empty() && dim.symbol == batch.symbol;
    });
    entry.batch_axis = same != dims.end() ? same - dims.begin() : batch.size < 0 && !open.empty() ? open[0] : 0;
    std::erase(open, entry.batch_axis);
    if (open.size() > 1) {
      throw InputError("which axis of the input " + described(past) +
                       " grows with the tokens cannot be told; fix the size of the other by shapes=");
    }
    entry.sequence_axis = open.empty() ? -1 : open[0];
  }

  const std::vector<InputSpec>& inputs_;
  const std::vector<OutputSpec>& outputs_;
  const Mapping& mapping_;
  Layout layout_;
  std::set<std::string> taken_, given_;  // inputs and outputs of which it is known what they are
  std::vector<const InputSpec*> lone_pasts_;
};

}  // namespace

Layout find_layout(const std::vector<InputSpec>& inputs, const std::vector<OutputSpec>& outputs,
                   const Mapping& mapping) {
  return Finder(inputs, outputs, mapping).find();
}

std::string Layout::str() const {
  std::ostringstream text;
  const auto list = [&](const std::map<std::string, std::string>& names) {
    for (const auto& [role, name] : names) text << "\n  " << role << (name == role ? "" : ": " + name);
  };
  text << "inputs";
  list(inputs);
  text << "\noutputs";
  list(outputs);
  text << "\ncaches" << (caches.empty() ? ": none, so that each step reads the whole sequence" : "");
  for (const CacheEntry& entry : caches) {
    text << "\n  " << (entry.past.empty() ? "nothing" : entry.past) << " → "
         << (entry.present.empty() ? "nothing" : entry.present) << ", ";
    if (entry.of_encoder) {
      text << "of the encoder";
    } else if (entry.sequence_axis < 0) {
      text << "of a fixed size";
    } else {
      text << "grows along axis " << entry.sequence_axis;
    }
  }
  return text.str();
}

std::set<std::string> logits_names(const Mapping& mapping) {
  const auto given = mapping.outputs.find("logits");
  if (given != mapping.outputs.end()) return {given->second};
  return {std::begin(kLogits), std::end(kLogits)};
}

}  // namespace onnxtorch
