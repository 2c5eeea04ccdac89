// The tokenizers of onnxruntime-extensions, and the decoders that give texts back.
#include <string>

#include "kernels/standard/byte_pair_decoder.h"
#include "kernels/standard/byte_pairs.h"
#include "kernels/standard/sentence_pieces.h"
#include "kernels/standard/word_piece_decoder.h"
#include "kernels/standard/word_pieces.h"
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives the ids of the pieces, the indices of their texts, and a mask of ones.
Values bert_tokens(Translator& t, const NodeView& n, bool is_pair) {
  if (n.wants(3)) n.unsupported("with the output offset_mapping");
  const auto pieces = c10::make_intrusive<WordPieces>(WordPieces::Attributes{
      .vocab_file = n.attr_string("vocab_file"),
      .unk_token = n.attr_string("unk_token"),
      .sep_token = n.attr_string("sep_token"),
      .cls_token = n.attr_string("cls_token"),
      .suffix_indicator = n.attr_string("suffix_indicator"),
      .do_lower_case = n.attr_int("do_lower_case") != 0,
      .do_basic_tokenize = n.attr_int("do_basic_tokenize") != 0,
      .tokenize_chinese_chars = n.attr_int("tokenize_chinese_chars") != 0,
      .strip_accents = n.attr_int("strip_accents") != 0,
      .max_length = n.attr_int("max_length"),
  });
  Values found = t.call_all("onnx_torch::word_pieces", {t.string_pool(), n.tensor(0), t.object(pieces), is_pair});
  found.push_back(t.call("aten::ones_like", {found[0]}));
  return found;
}

Values bert_tokenizer(Translator& t, const NodeView& n) { return bert_tokens(t, n, /*is_pair=*/false); }

Values hf_bert_tokenizer(Translator& t, const NodeView& n) {
  Values found = bert_tokens(t, n, /*is_pair=*/true);
  for (Value& row : found) row = t.call("aten::unsqueeze", {row, 0});
  return {found[0], found[2], found[1]};
}

// The marks of a kind of tokenizers, and its name, for which the attribute model_name may give another kind's.
struct BytePairKind {
  std::string name, unk_token, bos_token, eos_token, pad_token;
};

// Makes the translator that gives the ids of the tokens, padded to one length, and a mask of them.
TranslateFunction byte_pair_tokenizer(const BytePairKind& kind) {
  return [kind](Translator& t, const NodeView& n) -> Values {
    if (n.wants(2)) n.unsupported("with the output offset_mapping");
    const std::string given = n.attr_string("model_name"), name = given.empty() ? kind.name : given;
    if (name != "GPT2" && name != "CodeGen" && name != "CLIP" && name != "Roberta") {
      n.unsupported("with the model_name \"" + name + "\": GPT2, CodeGen, CLIP and Roberta are known");
    }
    const auto pairs = c10::make_intrusive<BytePairs>(BytePairs::Attributes{
        .vocab = n.attr_string("vocab"),
        .merges = n.attr_string("merges"),
        .added_token = n.attr_string("added_token"),
        .unk_token = kind.unk_token,
        .bos_token = kind.bos_token,
        .eos_token = kind.eos_token,
        .pad_token = kind.pad_token,
        .has_marks = name == "CLIP" || name == "Roberta",
        .is_clip = name == "CLIP",
        .padding_length = n.attr_int("padding_length"),
    });
    return t.call_all("onnx_torch::byte_pairs", {t.string_pool(), n.tensor(0), t.object(pairs)});
  };
}

const std::string kEndOfText = "<|endoftext|>";
const BytePairKind kGpt2{"GPT2", kEndOfText, kEndOfText, kEndOfText, ""};
const BytePairKind kClip{"CLIP", kEndOfText, "<|startoftext|>", kEndOfText, kEndOfText};
const BytePairKind kRoberta{"Roberta", "<unk>", "<s>", "</s>", "<pad>"};

Values bpe_decoder(Translator& t, const NodeView& n) {
  const auto decoder = c10::make_intrusive<BytePairDecoder>(BytePairDecoder::Attributes{
      .id_vocab = n.attr_string("id_vocab"),
      .byte_decoder = n.attr_string("byte_decoder"),
      .added_tokens = n.attr_string("added_tokens"),
      .all_special_ids = n.attr_string("all_special_ids"),
      .unk_token = n.attr_string("unk_token"),
      .skip_special_tokens = n.attr_int("skip_special_tokens") != 0,
      .whitespace_token = n.attr_int("whitespace_token") != 0,
  });
  return t.call_all("onnx_torch::byte_pair_texts", {t.string_pool(), n.tensor(0), t.object(decoder)});
}

// Translates BertTokenizerDecoder. The input `positions` counts with use_indices alone.
Values bert_tokenizer_decoder(Translator& t, const NodeView& n) {
  const auto decoder = c10::make_intrusive<WordPieceDecoder>(WordPieceDecoder::Attributes{
      .vocab_file = n.attr_string("vocab_file"),
      .unk_token = n.attr_string("unk_token"),
      .sep_token = n.attr_string("sep_token"),
      .pad_token = n.attr_string("pad_token"),
      .cls_token = n.attr_string("cls_token"),
      .mask_token = n.attr_string("mask_token"),
      .suffix_indicator = n.attr_string("suffix_indicator"),
      .skip_special_tokens = n.attr_int("skip_special_tokens") != 0,
      .clean_up_tokenization_spaces = n.attr_int("clean_up_tokenization_spaces") != 0,
  });
  const Arg ranges = n.attr_int("use_indices") != 0 ? Arg(n.tensor(1)) : Arg(none);
  return t.call_all("onnx_torch::word_piece_texts", {t.string_pool(), n.tensor(0), ranges, t.object(decoder)});
}

// Makes the tokenizer of a node, with what its input `fairseq` is, the last one.
std::pair<Arg, Arg> sentence_pieces_of(Translator& t, const NodeView& n, int fairseq) {
  const auto pieces = c10::make_intrusive<SentencePieces>(SentencePieces::Attributes{.model = n.attr_string("model")});
  return {t.object(pieces), n.has(fairseq) ? Arg(n.tensor(fairseq)) : Arg(none)};
}

// Translates SentencepieceTokenizer. The inputs `nbest_size` and `alpha` do not count.
Values sentencepiece_tokenizer(Translator& t, const NodeView& n) {
  const auto [pieces, fairseq] = sentence_pieces_of(t, n, 6);
  return t.call_all("onnx_torch::sentence_pieces",
                    {t.string_pool(), n.tensor(0), pieces, n.tensor(3), n.tensor(4), n.tensor(5), fairseq});
}

Values sentencepiece_decoder(Translator& t, const NodeView& n) {
  const auto [pieces, fairseq] = sentence_pieces_of(t, n, 1);
  return t.call_all("onnx_torch::sentence_text", {t.string_pool(), n.tensor(0), pieces, fairseq});
}

}  // namespace

void register_contrib_tokenizers_ops(Registry& r) {
  r.op(kExtensions, "BertTokenizer").since(1, bert_tokenizer);
  r.op(kExtensions, "BertTokenizerDecoder").since(1, bert_tokenizer_decoder);
  r.op(kExtensions, "BpeDecoder").since(1, bpe_decoder);
  r.op(kExtensions, "CLIPTokenizer").since(1, byte_pair_tokenizer(kClip));
  r.op(kExtensions, "GPT2Tokenizer").since(1, byte_pair_tokenizer(kGpt2));
  r.op(kExtensions, "HfBertTokenizer").since(1, hf_bert_tokenizer);
  r.op(kExtensions, "RobertaTokenizer").since(1, byte_pair_tokenizer(kRoberta));
  r.op(kExtensions, "SentencepieceDecoder").since(1, sentencepiece_decoder);
  r.op(kExtensions, "SentencepieceTokenizer").since(1, sentencepiece_tokenizer);
}

}  // namespace onnxtorch
