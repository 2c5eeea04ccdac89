#include "kernels/standard/sentence_pieces.h"

#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "base/interruption.h"
#include "kernels/standard/pair_merging.h"
#include "kernels/standard/saved_attributes.h"
#include "kernels/standard/texts.h"
#include "sentence_piece_model.pb.h"

namespace onnxtorch {
namespace {

using sentencepiece::Piece;
using sentencepiece::Trainer;

// Decodes base64; gives nothing where a text is none.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return {};
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
  }
  return bytes;
}

// Reads the attribute: a model's bytes, or these in base64.
std::unique_ptr<const sentencepiece::Model> model_of(const std::string& attribute) {
  auto model = std::make_unique<sentencepiece::Model>();
  TORCH_CHECK_VALUE(model->ParseFromString(from_base64(attribute).value_or(attribute)),
                    "the attribute model is no model that sentencepiece has trained");
  return model;
}

SentenceNormalizer::Options options_of(const sentencepiece::Normalizer& spec, bool treat_whitespace_as_suffix) {
  return {.precompiled_charsmap = spec.precompiled_charsmap(),
          .add_dummy_prefix = spec.add_dummy_prefix(),
          .remove_extra_whitespaces = spec.remove_extra_whitespaces(),
          .escape_whitespaces = spec.escape_whitespaces(),
          .treat_whitespace_as_suffix = treat_whitespace_as_suffix};
}

Piece::Type type_of(const sentencepiece::Model& model, int64_t id) { return model.pieces(static_cast<int>(id)).type(); }

// Gives the size of the character that a text begins with, by its first byte.
size_t size_of_character(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t size = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return std::min(size, text.size());
}

// Gives the name of the piece that stands for a byte: "<0x0A>".
std::string name_of_byte(int byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace

SentencePieces::SentencePieces(Attributes attributes)
    : attributes_(std::move(attributes)), model_(model_of(attributes_.model)) {
  read_pieces();
  PrefixTree::Texts pieces(ids_.begin(), ids_.end()), user_defined;
  std::ranges::copy_if(pieces, std::back_inserter(user_defined),
                       [&](const auto& piece) { return type_of(*model_, piece.second) == Piece::USER_DEFINED; });
  pieces_ = std::make_unique<PrefixTree>(std::move(pieces));
  user_defined_ = std::make_unique<PrefixTree>(std::move(user_defined));
  normalize_ = std::make_unique<SentenceNormalizer>(
      options_of(model_->normalizer_spec(), model_->trainer_spec().treat_whitespace_as_suffix()), user_defined_.get());
  if (!model_->denormalizer_spec().precompiled_charsmap().empty()) {
    denormalize_ = std::make_unique<SentenceNormalizer>(
        options_of(model_->denormalizer_spec(), /*treat_whitespace_as_suffix=*/false), /*kept=*/nullptr);
  }
}

SentencePieces::~SentencePieces() = default;

// Finds the ids of the pieces by their names, and the lowest and the highest score.
void SentencePieces::read_pieces() {
  const bool has_bytes = model_->trainer_spec().byte_fallback();
  for (int id = 0; id < model_->pieces_size(); ++id) {
    const Piece& piece = model_->pieces(id);
    const auto type = piece.type();
    const bool is_of_text = type == Piece::NORMAL || type == Piece::USER_DEFINED || type == Piece::UNUSED;
    TORCH_CHECK_VALUE(!piece.piece().empty(), "piece ", id, " of the model is empty");
    TORCH_CHECK_VALUE(!std::isnan(piece.score()), "the score of piece ", id, " of the model is not a number");
    TORCH_CHECK_VALUE((is_of_text ? ids_ : reserved_).emplace(piece.piece(), id).second,
                      "the model has the piece of id ", id, " twice");
    TORCH_CHECK_VALUE(type != Piece::UNKNOWN || unknown_ < 0, "the model has two pieces for what is unknown");
    TORCH_CHECK_VALUE(type != Piece::BYTE || has_bytes, "the model has pieces for bytes, and no byte_fallback");
    if (type == Piece::UNKNOWN) unknown_ = id;
    if (type != Piece::NORMAL) continue;
    lowest_score_ = std::min(lowest_score_, piece.score());
    highest_score_ = std::max(highest_score_, piece.score());
  }
  TORCH_CHECK_VALUE(unknown_ >= 0, "the model has no piece for what is unknown");
  for (int byte = 0; has_bytes && byte < 256; ++byte) {
    const auto found = reserved_.find(name_of_byte(byte));
    TORCH_CHECK_VALUE(found != reserved_.end() && type_of(*model_, found->second) == Piece::BYTE,
                      "the model has byte_fallback, and no piece ", name_of_byte(byte));
    bytes_.push_back(found->second);
  }
}

int64_t SentencePieces::id_of(std::string_view piece) const {
  for (const Ids* ids : {&reserved_, &ids_}) {
    const auto found = ids->find(piece);
    if (found != ids->end()) return found->second;
  }
  return unknown_;
}

int64_t SentencePieces::control(std::string_view piece) const {
  const int64_t id = id_of(piece);
  return type_of(*model_, id) == Piece::CONTROL ? id : -1;
}

int64_t SentencePieces::bos() const { return control(model_->trainer_spec().bos_piece()); }
int64_t SentencePieces::eos() const { return control(model_->trainer_spec().eos_piece()); }

SentencePieces::Symbol SentencePieces::first_symbol(std::string_view text) const {
  const size_t size = user_defined_->longest_prefix(text);
  return {.text = text.substr(0, size > 0 ? size : size_of_character(text)), .is_user_defined = size > 0};
}

// Gives the parts whose scores have the largest sum, by Viterbi's algorithm. A character that is no piece costs more than
// any other, and what a user has defined is worth more.
std::vector<SentencePieces::Part> SentencePieces::likeliest_parts(std::string_view text) const {
  constexpr float kUnknownPenalty = 10;
  constexpr double kUserDefinedPenalty = 0.1;
  struct Path {
    int64_t last_id, last_begin;  // of its last part
    float score;
  };
  std::vector<std::optional<Path>> best(text.size() + 1);  // of the paths that end before each byte
  best[0] = {.last_id = 0, .last_begin = 0, .score = 0};
  const auto offer = [&](size_t begin, size_t end, int64_t id, double score) {
    if (best[end] && score <= best[end]->score) return;
    best[end] = {.last_id = id, .last_begin = static_cast<int64_t>(begin), .score = static_cast<float>(score)};
  };
  for (size_t begin = 0; begin < text.size();) {
    check_interruption();
    const std::string_view rest = text.substr(begin);
    const size_t character = size_of_character(rest);
    const float before = best[begin]->score;
    bool is_known = false;
    pieces_->for_each_prefix(rest, [&](size_t size, int64_t id) {
      const Piece& piece = model_->pieces(static_cast<int>(id));
      if (piece.type() == Piece::UNUSED) return;
      const double score = piece.type() == Piece::USER_DEFINED
                               ? static_cast<float>(size) * highest_score_ - kUserDefinedPenalty
                               : piece.score();
      offer(begin, begin + size, id, score + before);
      is_known = is_known || size == character;
    });
    if (!is_known) offer(begin, begin + character, unknown_, (lowest_score_ - kUnknownPenalty) + before);
    begin += character;
  }
  std::vector<Part> parts;
  for (size_t end = text.size(); end > 0; end = best[end]->last_begin) {
    const auto& [id, begin, score] = *best[end];
    parts.push_back({text.substr(begin, end - begin), id});
  }
  std::ranges::reverse(parts);
  return parts;
}

// Gives the parts that characters are merged to: of all pairs of neighbours that are a piece together, the one with the
// highest score is merged first. A part that is an UNUSED piece becomes again what it was merged of.
std::vector<SentencePieces::Part> SentencePieces::merged_parts(std::string_view text) const {
  std::vector<Symbol> symbols;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(symbols.back().text.size())) {
    symbols.push_back(first_symbol(rest));
  }
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;
  merge_pairs(symbols, [&](const Symbol& first, const Symbol& second) -> std::optional<Merged<Symbol>> {
    check_interruption();
    if (first.is_user_defined || second.is_user_defined) return {};
    const std::string_view both(first.text.data(), first.text.size() + second.text.size());
    const auto found = ids_.find(both);
    if (found == ids_.end()) return {};
    const Piece& piece = model_->pieces(static_cast<int>(found->second));
    if (piece.type() == Piece::UNUSED) halves.insert_or_assign(both, std::pair(first.text, second.text));
    return Merged<Symbol>{.rank = -piece.score(), .token = {both, false}};
  });
  std::vector<Part> parts;
  for (const Symbol& symbol : symbols) {
    std::vector<std::string_view> rest{symbol.text};
    while (!rest.empty()) {
      const std::string_view part = rest.back();
      rest.pop_back();
      const int64_t id = id_of(part);
      const auto found = type_of(*model_, id) == Piece::UNUSED ? halves.find(part) : halves.end();
      if (found == halves.end()) {
        parts.push_back({part, id});
      } else {
        rest.insert(rest.end(), {found->second.second, found->second.first});
      }
    }
  }
  return parts;
}

std::vector<SentencePieces::Part> SentencePieces::words(std::string_view text) const {
  std::vector<Part> parts;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(kSpaceSign, 1));
    parts.push_back({word, id_of(word)});
    text.remove_prefix(word.size());
  }
  return parts;
}

std::vector<SentencePieces::Part> SentencePieces::characters(std::string_view text) const {
  std::vector<Part> parts;
  while (!text.empty()) {
    const std::string_view part = first_symbol(text).text;
    parts.push_back({part, id_of(part)});
    text.remove_prefix(part.size());
  }
  return parts;
}

std::vector<SentencePieces::Part> SentencePieces::parts(std::string_view text) const {
  switch (model_->trainer_spec().model_type()) {
    case Trainer::BPE:
      return merged_parts(text);
    case Trainer::WORD:
      return words(text);
    case Trainer::CHAR:
      return characters(text);
    default:
      return likeliest_parts(text);
  }
}

// What is unknown becomes its bytes where the model has pieces for them; else neighbours of it become one.
std::vector<SentencePieces::Token> SentencePieces::tokens(std::string_view text) const {
  const auto [normalized, origins] = (*normalize_)(text);
  std::vector<Token> tokens;
  size_t at = 0;
  bool follows_unknown = false;
  for (const auto& [part, id] : parts(normalized)) {
    const bool is_unknown = id == unknown_;
    if (is_unknown && !bytes_.empty()) {
      for (const char byte : part) tokens.push_back({bytes_[static_cast<uint8_t>(byte)], origins[at]});
    } else if (!is_unknown || !follows_unknown) {
      tokens.push_back({id, origins[at]});
    }
    at += part.size();
    follows_unknown = is_unknown;
  }
  return tokens;
}

// Gives the text that a piece which is no byte stands for. A space at the text's begin is taken for the one that was put
// there; then `took_space` is set.
std::string SentencePieces::text_of(int64_t id, bool is_at_begin, bool& took_space) const {
  took_space = false;
  const Piece& piece = model_->pieces(static_cast<int>(id));
  if (piece.type() == Piece::CONTROL) return "";
  if (piece.type() == Piece::UNKNOWN) return model_->trainer_spec().unk_surface();
  const sentencepiece::Normalizer& spec = model_->normalizer_spec();
  std::string_view text = piece.piece();
  const bool takes_space = is_at_begin && (spec.add_dummy_prefix() || spec.remove_extra_whitespaces());
  if (takes_space && text.starts_with(kSpaceSign)) {
    text.remove_prefix(kSpaceSign.size());
    took_space = !spec.remove_extra_whitespaces();  // else all spaces there are taken
  }
  return replaced(text, kSpaceSign, " ");
}

// Bytes that are no UTF-8 become U+FFFD each.
std::string SentencePieces::text(std::span<const int64_t> ids) const {
  std::string text, bytes;
  bool is_at_begin = true, took_space = false;
  const auto end_bytes = [&] {
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t size = size_of_valid_character(rest);
      text += size > 0 ? rest.substr(0, size) : kReplacement;
      rest.remove_prefix(std::max<size_t>(size, 1));
    }
    bytes.clear();
  };
  for (const int64_t given : ids) {
    TORCH_CHECK_VALUE(given >= 0 && given < model_->pieces_size(), "there is no piece of the id ", given,
                      ": the model has ", model_->pieces_size());
    const int64_t id = id_of(model_->pieces(static_cast<int>(given)).piece());
    const auto byte = std::ranges::find(bytes_, id);
    if (byte != bytes_.end()) {
      bytes.push_back(static_cast<char>(byte - bytes_.begin()));
      continue;
    }
    end_bytes();
    if (took_space || !text.empty()) is_at_begin = false;
    text += text_of(id, is_at_begin, took_space);
  }
  end_bytes();
  return denormalize_ ? (*denormalize_)(text).text : text;
}

namespace {

bool is_set(const at::Tensor& flag, const char* name) {
  TORCH_CHECK_VALUE(flag.numel() == 1, name, " must be one bool, not ", flag.numel());
  return flag.item<bool>();
}

// The ids of fairseq's vocabulary, which begins with <s>, <pad>, </s> and <unk>, and sentencepiece's with <unk>, <s> and
// </s>.
int64_t to_fairseq(int64_t id) { return id == 0 ? 3 : id == 1 ? 0 : id == 2 ? 2 : id + 1; }
int64_t from_fairseq(int64_t id) { return id == 3 ? 0 : id == 0 ? 1 : id == 2 || id < 0 ? id : id - 1; }

// Gives the ids of all texts' pieces in a row, where in it each text begins and the last ends, and where in its text each
// piece begins. As in onnxruntime-extensions, a text ends before its first zero, and fairseq's ids are not turned round.
std::tuple<at::Tensor, at::Tensor, at::Tensor> sentence_pieces(const Pool& pool, const at::Tensor& text,
                                                               const c10::intrusive_ptr<SentencePieces>& pieces,
                                                               const at::Tensor& add_bos, const at::Tensor& add_eos,
                                                               const at::Tensor& reverse,
                                                               const std::optional<at::Tensor>& fairseq) {
  const bool has_bos = is_set(add_bos, "add_bos"), has_eos = is_set(add_eos, "add_eos");
  const bool turns = is_set(reverse, "reverse");
  const bool is_fairseq = fairseq && is_set(*fairseq, "fairseq") && !turns;
  const at::Tensor in = on_host(text);
  std::vector<int64_t> ids, begins, ends{0};
  for (int64_t i = 0; i < in.numel(); ++i) {
    const std::string_view whole = pool->at(in.const_data_ptr<int64_t>()[i]);
    auto tokens = pieces->tokens(whole.substr(0, whole.find('\0')));
    if (has_bos) tokens.insert(tokens.begin(), {pieces->bos(), 0});
    if (has_eos) tokens.push_back({pieces->eos(), std::ssize(whole)});
    if (turns) std::ranges::reverse(tokens);
    for (const auto& [id, begin] : tokens) {
      ids.push_back(is_fairseq ? to_fairseq(id) : id);
      begins.push_back(begin);
    }
    ends.push_back(std::ssize(ids));
  }
  const auto on_device = [&](const std::vector<int64_t>& values, at::ScalarType type) {
    return at::tensor(values, at::kLong).to(text.device(), type);
  };
  return {on_device(ids, at::kInt), on_device(ends, at::kLong), on_device(begins, at::kInt)};
}

// Gives the text of a row of ids.
at::Tensor sentence_text(const Pool& pool, const at::Tensor& ids, const c10::intrusive_ptr<SentencePieces>& pieces,
                         const std::optional<at::Tensor>& fairseq) {
  TORCH_CHECK_VALUE(ids.dim() == 1 || (ids.dim() == 2 && ids.size(0) == 1), "ids must be of shape [n] or [1, n], not ",
                    ids.sizes());
  const at::Tensor in = on_host(ids);
  std::vector<int64_t> row(in.const_data_ptr<int64_t>(), in.const_data_ptr<int64_t>() + in.numel());
  if (fairseq && is_set(*fairseq, "fairseq")) std::ranges::transform(row, row.begin(), from_fairseq);
  return at::tensor({pool->intern(pieces->text(row))}, at::kLong).to(ids.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  register_saved_class<SentencePieces>(m, "SentencePieces");
  m.def(
      "sentence_pieces(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor text, "
      "__torch__.torch.classes.onnx_torch.SentencePieces pieces, Tensor add_bos, Tensor add_eos, Tensor reverse, "
      "Tensor? fairseq) -> (Tensor, Tensor, Tensor)");
  m.def(
      "sentence_text(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor ids, "
      "__torch__.torch.classes.onnx_torch.SentencePieces pieces, Tensor? fairseq) -> Tensor");
  m.impl("sentence_pieces", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(sentence_pieces));
  m.impl("sentence_text", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(sentence_text));
}

}  // namespace onnxtorch
