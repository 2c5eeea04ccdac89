// GreedySearch, Sampling, BeamSearch and WhisperBeamSearch, which call a decoder for one token after another.
#include <onnx/onnx-ml.pb.h>

#include <functional>

#include "ops/contrib/contrib.h"
#include "translate/registry.h"
#include "translate/signature.h"

namespace onnxtorch {
namespace {

Value input_named(const NodeView& n, std::string_view name) {
  const auto& inputs = n.schema()->inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == name) return n.input(i);
  }
  return {};
}

double number_or(const NodeView& n, const char* attribute, double otherwise) {
  return n.has_attribute(attribute) ? n.attr_float(attribute) : otherwise;
}

// Gives the temperature: an attribute of Sampling, an input of WhisperBeamSearch.
Arg temperature(Translator& t, const NodeView& n) {
  const Value input = input_named(n, "temperature");
  return input.absent() ? Arg(number_or(n, "temperature", 1)) : Arg(t.number(input));
}

Value int32(const Value& v) { return v.as(ElementType::Int32); }

// The choice that a step makes by the logits: whether to go on, the rows of the batch that the new ones continue
// (absent: the same ones), and the state that the steps share, of which the sequences are first.
struct Chosen {
  Value going, rows;
  Values state;
};
using Choose = std::function<Chosen(const Value& step, const Value& logits, const Values& state)>;

// The model that generates logits: the inputs that go from step to step, the functions that make logits and presents of
// them, and the one that makes the next inputs of that. The first step may be of another kind than the others.
struct Model {
  Values inputs;
  std::function<Values(const Values& inputs)> first, decode;
  std::function<Values(const Values& inputs, const Values& outputs, const Chosen& chosen, const Value& step)> next;
};

Values joined(Values front, const Values& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

// Runs the steps, and gives the state after the last one.
Values generate(Translator& t, const Model& model, const Value& steps, const Values& state, const Choose& choose) {
  const auto run = [&](const auto& decode, const Value& step, const Values& carried) {
    const auto middle = carried.begin() + static_cast<std::ptrdiff_t>(state.size());
    const Values inputs(middle, carried.end());
    const Values outputs = decode(inputs);
    const Chosen chosen = choose(step, outputs[0], {carried.begin(), middle});
    return Translator::Step{chosen.going, joined(chosen.state, model.next(inputs, outputs, chosen, step))};
  };
  const Values first = joined(state, model.inputs);
  if (!model.first) {
    return t.loop(steps, {}, first,
                  [&](const Value& step, const Values& carried) { return run(model.decode, step, carried); });
  }
  const Translator::Step second = run(model.first, t.scalar(0), first);
  return t.loop(t.call("aten::sub", {steps, 1}), second.condition, second.carried,
                [&](const Value& step, const Values& carried) {
                  return run(model.decode, t.call("aten::add", {step, 1}), carried);
                });
}

// Gives the presents, which are the next pasts, of the rows that go on.
Values next_pasts(Translator& t, const Values& outputs, const Value& rows, int64_t batch_dimension) {
  Values pasts;
  for (size_t i = 1; i < outputs.size(); ++i) {
    pasts.push_back(rows.absent()
                        ? outputs[i]
                        : t.call("aten::index_select", {outputs[i], batch_dimension, rows}).as(outputs[i].type));
  }
  return pasts;
}

// Gives the declared element type; Float where it is not declared.
ElementType declared_element(const onnx::ValueInfoProto& value) {
  const ElementType element = value_type(value.type()).element;
  return element == ElementType::Undefined ? ElementType::Float : element;
}

// Makes the past of a layer before the first token, of shape [front…, batch, heads, 0, size]. The declaration tells
// heads and size.
Value empty_past(Translator& t, const NodeView& n, const onnx::ValueInfoProto& past, const Value& tokens,
                 const std::vector<int64_t>& front) {
  const auto& shape = past.type().tensor_type().shape();
  const int rank = static_cast<int>(front.size()) + 4;
  if (shape.dim_size() != rank || shape.dim(rank - 3).dim_value() <= 0 || shape.dim(rank - 1).dim_value() <= 0) {
    n.fail("its decoder must tell the heads and the size of " + past.name());
  }
  const ElementType element = declared_element(past);
  return t.call("no_past", {tokens, front, shape.dim(rank - 3).dim_value(), shape.dim(rank - 1).dim_value(), element})
      .as(element);
}

// The scores of the words that may come next, without what the inputs and attributes forbid.
class Scores {
 public:
  Scores(Translator& t, const NodeView& n, const Value& num_beams)
      : t_(t),
        vocab_size_(n.attr_int("vocab_size")),
        limits_{n.attr_int("eos_token_id"),
                n.attr_int("no_repeat_ngram_size"),
                t.integer(input_named(n, "min_length")),
                t.number(input_named(n, "repetition_penalty")),
                input_named(n, "vocab_mask"),
                t.call("beams_of", {input_named(n, "prefix_vocab_mask"), num_beams}),
                input_named(n, "presence_mask"),
                temperature(t, n),
                number_or(n, "presence_penalty", 0)} {}

  Value logits(const Value& logits) const { return t_.call("next_logits", {logits, vocab_size_}); }

  Value processed(const Value& scores, const Value& sequences, const Value& step) const {
    std::vector<Arg> args{scores, sequences, step};
    args.insert(args.end(), limits_.begin(), limits_.end());
    return t_.call("processed_scores", args);
  }

 private:
  Translator& t_;
  int64_t vocab_size_;
  std::vector<Arg> limits_;
};

// --- A decoder like that of GPT-2 ---

// The place of the decoder's first past. Its inputs are input_ids, position_ids, attention_mask and the past of each
// layer; its outputs logits and the present of each layer.
constexpr int kFirstPast = 3;

void check_gpt(const NodeView& n, const onnx::GraphProto& decoder) {
  if (decoder.input_size() <= kFirstPast || decoder.output_size() < 2) n.fail("its decoder takes or gives no past");
  if (decoder.input_size() != decoder.output_size() + 2) {
    n.unsupported("its decoder is one whose past and present share memory");
  }
}

Model gpt(Translator& t, const NodeView& n, const Value& input_ids, const Value& attention_mask) {
  const onnx::GraphProto& decoder = n.attr_graph("decoder");
  check_gpt(n, decoder);
  const Values prompt = t.call_all("gpt_prompt", {input_ids, attention_mask, n.attr_int("pad_token_id")});
  Values inputs{input_ids, int32(prompt[0]), int32(prompt[1])};
  for (int i = kFirstPast; i < decoder.input_size(); ++i) {
    inputs.push_back(empty_past(t, n, decoder.input(i), input_ids, {2}));
  }
  Model model{.inputs = inputs,
              .first = {},
              .decode = [&t, &decoder](const Values& now) { return t.subgraph(decoder, now); },
              .next =
                  [&t, prompt](const Values& now, const Values& outputs, const Chosen& chosen, const Value& step) {
                    Values next;
                    for (const Value& v : t.call_all("next_gpt_inputs", {chosen.state[0], now[2], prompt[2], step})) {
                      next.push_back(int32(v));
                    }
                    return joined(next, next_pasts(t, outputs, chosen.rows, 1));
                  }};
  if (n.has_attribute("init_decoder")) {
    const onnx::GraphProto& first = n.attr_graph("init_decoder");
    check_gpt(n, first);
    if (first.input_size() != decoder.input_size()) n.fail("its init_decoder has not as many layers as its decoder");
    model.first = [&t, &first](const Values& now) { return t.subgraph(first, now); };
  }
  return model;
}

// --- An encoder and a decoder, like those of T5 and Whisper ---

bool is_self(const std::string& name) { return name.find("_self_") != std::string::npos; }
bool is_cross(const std::string& name) { return name.find("_cross_") != std::string::npos; }

// The encoder's results for each beam. The encoder may be one that decodes the first tokens as well.
struct Encoded {
  Value mask, hidden, logits;
  Values self, cross;
};

Encoded encode(Translator& t, const NodeView& n, const Value& first_tokens, const Value& beams) {
  const onnx::GraphProto& encoder = n.attr_graph("encoder");
  Encoded encoded;
  Values inputs;
  for (const onnx::ValueInfoProto& input : encoder.input()) {
    if (input.name() == "encoder_input_ids") {
      inputs.push_back(n.tensor(0));
    } else if (input.name() == "encoder_attention_mask") {
      const Value given = input_named(n, "attention_mask");
      inputs.push_back(int32(t.call("encoder_mask", {n.tensor(0), given, n.attr_int("pad_token_id")})));
      encoded.mask = int32(t.call("beams_of", {inputs.back(), beams}));
    } else if (input.name() == "decoder_input_ids") {
      inputs.push_back(first_tokens);
    } else {
      n.unsupported("its encoder has an input " + input.name());
    }
  }
  const Values outputs = t.subgraph(encoder, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = encoder.output(static_cast<int>(i)).name();
    const Value output = t.call("beams_of", {outputs[i], beams}).as(outputs[i].type);
    if (name == "logits") {
      encoded.logits = output;
    } else if (name == "encoder_hidden_states") {
      encoded.hidden = output;
    } else if (is_self(name) || is_cross(name)) {
      (is_self(name) ? encoded.self : encoded.cross).push_back(output);
    } else {
      n.unsupported("its encoder has an output " + name);
    }
  }
  return encoded;
}

// Gives the decoder's inputs, of which the tokens and the pasts of self-attention go from step to step.
Values decoder_inputs(const NodeView& n, const onnx::GraphProto& decoder, const Encoded& encoded, const Values& now) {
  Values inputs;
  size_t self = 1, cross = 0;
  for (const onnx::ValueInfoProto& input : decoder.input()) {
    const std::string& name = input.name();
    if (name == "input_ids") {
      inputs.push_back(now[0]);
    } else if (name == "encoder_attention_mask" && !encoded.mask.absent()) {
      inputs.push_back(encoded.mask);
    } else if (name == "encoder_hidden_states" && !encoded.hidden.absent()) {
      inputs.push_back(encoded.hidden);
    } else if (is_self(name) && self < now.size()) {
      inputs.push_back(now[self++]);
    } else if (is_cross(name) && cross < encoded.cross.size()) {
      inputs.push_back(encoded.cross[cross++]);
    } else {
      n.unsupported("nothing is known of the input " + name + " of its decoder");
    }
  }
  return inputs;
}

Model encoder_decoder(Translator& t, const NodeView& n, const Value& tokens, const Value& first_tokens,
                      const Value& beams) {
  const onnx::GraphProto& decoder = n.attr_graph("decoder");
  if (decoder.input_size() == 0 || decoder.input(0).name() != "input_ids") {
    n.fail("the first input of its decoder must be input_ids");
  }
  const Encoded encoded = encode(t, n, first_tokens, beams);
  Values inputs{tokens};
  for (const onnx::ValueInfoProto& input : decoder.input()) {
    if (encoded.logits.absent() && is_self(input.name())) inputs.push_back(empty_past(t, n, input, tokens, {}));
  }
  inputs = joined(inputs, encoded.self);
  if (inputs.size() != static_cast<size_t>(decoder.output_size())) {
    n.fail("its decoder gives not as many presents as it takes pasts");
  }
  Model model{
      .inputs = inputs,
      .first = {},
      .decode = [&t, &n, &decoder,
                 encoded](const Values& now) { return t.subgraph(decoder, decoder_inputs(n, decoder, encoded, now)); },
      .next =
          [&t, &decoder](const Values&, const Values& outputs, const Chosen& chosen, const Value&) {
            // A decoder that takes several tokens is given all there are.
            const auto& shape = decoder.input(0).type().tensor_type().shape();
            const bool takes_last = shape.dim_size() == 2 && shape.dim(1).dim_value() == 1;
            const Value all = chosen.state[0];
            const Value ids = takes_last ? t.call("last_tokens", {all}) : all;
            return joined({int32(ids)}, next_pasts(t, outputs, chosen.rows, 0));
          }};
  if (!encoded.logits.absent()) {
    model.first = [encoded](const Values&) { return joined({encoded.logits}, encoded.self); };
  }
  return model;
}

// --- One sequence each ---

// A function that gives the next tokens, and what else the steps share.
using Pick = std::function<Values(const Value& scores, const Value& step)>;

// Generates one sequence each. Gives the sequences, and what else the last step gave.
Values one_by_one(Translator& t, const NodeView& n, const Values& rest, const Pick& pick) {
  if (n.attr_int("model_type") != 0) n.fail("its model_type must be 0, that of GPT-2");
  const Value input_ids = n.tensor(0);
  const Value max_length = n.integer(1);
  const Value steps = t.call("search_steps", {input_ids, max_length});
  const Scores scores(t, n, t.scalar(1));
  const int64_t eos = n.attr_int("eos_token_id"), pad = n.attr_int("pad_token_id");
  const Values start = joined({input_ids, t.call("none_ended", {input_ids})}, rest);
  Values result =
      generate(t, gpt(t, n, input_ids, input_named(n, "attention_mask")), steps, start,
               [&](const Value& step, const Value& logits, const Values& state) {
                 const Values picked = pick(scores.processed(scores.logits(logits), state[0], step), step);
                 const Values grown = t.call_all("grown_sequences", {state[0], state[1], picked[0], eos, pad});
                 return Chosen{grown[0], {}, joined({int32(grown[1]), grown[2]}, {picked.begin() + 1, picked.end()})};
               });
  result[0] = int32(t.call("filled_up", {result[0], max_length, pad}));
  return result;
}

Values greedy_search(Translator& t, const NodeView& n) {
  const auto best = [&](const Value& scores, const Value&) { return Values{t.call("aten::argmax", {scores, 1})}; };
  return {one_by_one(t, n, {}, best)[0]};
}

Values sampling(Translator& t, const NodeView& n) {
  const Value seed = t.integer(input_named(n, "seed"));
  const auto sampled = [&](const Value& scores, const Value& step) {
    const Value filtered = t.call("filtered_scores", {scores, n.attr_float("top_p"), n.attr_float("filter_value"),
                                                      n.attr_int("min_tokens_to_keep"), n.attr_int("custom") != 0});
    return Values{t.call("sampled_tokens", {filtered, step, seed}), filtered};
  };
  const Values result = one_by_one(t, n, {t.call("no_scores", {n.tensor(0)})}, sampled);
  return {result[0], result[2].as(ElementType::Float)};
}

// --- Beams ---

// A function that gives what else becomes of the scores in each step.
using Process = std::function<Value(const Value& scores, const Value& sequences)>;

struct Beams {
  Values outputs;  // sequences, their scores, and those of each step where the node wants them
  Model model;
  Scores scores;
};

Beams search_beams(Translator& t, const NodeView& n, int64_t model_type, const Process& process) {
  const int64_t eos = n.attr_int("eos_token_id"), pad = n.attr_int("pad_token_id");
  const Value beams = t.integer(input_named(n, "num_beams"));
  const Value max_length = n.integer(1);
  const Value length_penalty = t.number(input_named(n, "length_penalty"));
  // The tokens that are given are for Whisper; for T5, onnxruntime leaves them out.
  const Value forced = model_type == 2 ? input_named(n, "decoder_input_ids") : Value{};
  const Value first_tokens =
      model_type == 0 ? n.tensor(0)
                      : int32(t.call("first_tokens", {n.tensor(0), forced, n.attr_int("decoder_start_token_id")}));
  const Value tokens = int32(t.call("beams_of", {first_tokens, beams}));
  const Value steps = t.call("search_steps", {tokens, max_length});
  const Scores scores(t, n, beams);
  const auto beams_of = [&](const Value& v) { return t.call("beams_of", {v, beams}); };
  const Model model = model_type == 0 ? gpt(t, n, tokens, beams_of(input_named(n, "attention_mask")))
                                      : encoder_decoder(t, n, tokens, first_tokens, beams);

  Values start = joined({tokens, t.call("first_beam_scores", {tokens, beams})},
                        t.call_all("no_hypotheses", {tokens, beams, max_length, pad}));
  if (n.wants(2)) start.push_back(t.list({}));
  const Values result =
      generate(t, model, steps, start, [&](const Value& step, const Value& logits, const Values& state) {
        const Value all = t.call("aten::log_softmax", {scores.logits(logits), 1});
        const Value own = process(scores.processed(all, state[0], step), state[0]);
        const Value sums = t.call("added_scores", {own, state[1]});
        Values next = t.call_all("beam_step", {sums, state[0], state[2], state[3], state[4], beams, eos, pad,
                                               length_penalty, n.attr_int("early_stopping") != 0});
        Chosen chosen{next[0], next[1], {next.begin() + 2, next.end()}};
        chosen.state[0] = int32(chosen.state[0]);
        if (n.wants(2)) {
          chosen.state.push_back(
              t.call("aten::append", {state[5], sums}).as(ValueType::sequence(ValueType::tensor(ElementType::Float))));
        }
        return chosen;
      });

  const Values best =
      t.call_all("best_hypotheses", {result[0], result[1], result[2], result[3], result[4],
                                     t.integer(input_named(n, "num_return_sequences")), pad, length_penalty});
  Values outputs{int32(best[0])};
  const ElementType type = declared_element(n.attr_graph("decoder").output(0));
  outputs.push_back(t.call("aten::to", {best[1], type}).as(type));
  if (n.wants(2)) {
    outputs.push_back(t.call("aten::to", {t.call("scores_of_steps", {result[5], beams, steps}), type}).as(type));
  }
  return {outputs, model, scores};
}

Values beam_search(Translator& t, const NodeView& n) {
  const int64_t model_type = n.attr_int("model_type");
  if (model_type < 0 || model_type > 2) n.fail("there is no model_type " + std::to_string(model_type));
  // The tokens that a processor of logits needs are attributes of WhisperBeamSearch only.
  const Value processor = model_type == 2 ? t.integer(input_named(n, "logits_processor")) : Value{};
  return search_beams(t, n, model_type,
                      [&](const Value& scores, const Value& sequences) {
                        return t.call("timestamp_scores", {scores, sequences, processor, 0, std::vector<int64_t>{}});
                      })
      .outputs;
}

Values whisper_beam_search(Translator& t, const NodeView& n) {
  if (n.wants(3) || (n.has_attribute("decoder_output_cross_qk") && n.attr_int("decoder_output_cross_qk") != 0)) {
    n.unsupported("the products of cross-attention (cross_qk) are not translated");
  }
  if (!input_named(n, "extra_decoding_ids").absent()) n.unsupported("extra_decoding_ids are not translated");
  const auto token = [&](const char* name) { return n.has_attribute(name) ? n.attr_int(name) : -1; };
  const std::vector<int64_t> tokens{token("beginning_timestamp_token_id"), token("no_timestamps_token_id"),
                                    token("start_of_lm_token_id"),         token("decoder_start_token_id"),
                                    token("translate_token_id"),           token("transcribe_token_id")};
  const Value processor = t.integer(input_named(n, "logits_processor"));
  Beams found = search_beams(t, n, 2, [&](const Value& scores, const Value& sequences) {
    return t.call("timestamp_scores", {scores, sequences, processor, n.attr_int("eos_token_id"), tokens});
  });
  if (!n.wants(4)) return found.outputs;
  if (!found.model.first) n.unsupported("its encoder gives no logits, which non_speech_probs is made of");
  found.outputs.resize(4);
  const Value probs = t.call("no_speech_probs", {found.scores.logits(found.model.first({})[0]),
                                                 t.integer(input_named(n, "num_beams")), token("no_speech_token_id")});
  const ElementType type = found.outputs[1].type.element;
  found.outputs.push_back(t.call("aten::to", {probs, type}).as(type));
  return found.outputs;
}

}  // namespace

void register_contrib_search_ops(Registry& r) {
  r.op(kMicrosoft, "BeamSearch").since(1, beam_search);
  r.op(kMicrosoft, "GreedySearch").since(1, greedy_search);
  r.op(kMicrosoft, "Sampling").since(1, sampling);
  r.op(kMicrosoft, "WhisperBeamSearch").since(1, whisper_beam_search);
}

}  // namespace onnxtorch
