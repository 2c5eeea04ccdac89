#include "kernels/standard/word_piece_decoder.h"

#include <torch/library.h>

#include <array>
#include <tuple>
#include <utility>

#include "kernels/standard/saved_attributes.h"
#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

// Takes out the spaces that English has not, in the order in which Hugging Face's tokenizers do.
std::string without_needless_spaces(std::string text) {
  constexpr std::array<std::string_view, 4> kSigns = {" .", " ?", " !", " ,"};
  constexpr std::array<std::string_view, 5> kEndings = {" n't", " 'm", " 's", " 've", " 're"};
  for (const std::string_view sign : kSigns) text = replaced(text, sign, sign.substr(1));
  text = replaced(text, " ' ", "'");
  for (const std::string_view ending : kEndings) text = replaced(text, ending, ending.substr(1));
  return text;
}

}  // namespace

WordPieceDecoder::WordPieceDecoder(Attributes attributes) : attributes_(std::move(attributes)) {
  for_each_line(attributes_.vocab_file, [&](std::string_view piece) { pieces_.push_back(piece); });
  TORCH_CHECK_VALUE(!pieces_.empty(), "vocab_file must not be empty");
  special_ = {attributes_.unk_token, attributes_.sep_token, attributes_.pad_token, attributes_.cls_token,
              attributes_.mask_token};
}

// Gives the text of ids. A piece that goes on with a word is left out at the beginning, where there is no word.
std::string WordPieceDecoder::text(std::span<const int64_t> ids) const {
  const std::string_view suffix = attributes_.suffix_indicator;
  std::string all;
  for (const int64_t id : ids) {
    const bool is_known = id >= 0 && id < std::ssize(pieces_);
    const std::string_view piece = is_known ? pieces_[id] : std::string_view(attributes_.unk_token);
    if (attributes_.skip_special_tokens && special_.contains(piece)) continue;
    if (!suffix.empty() && piece.starts_with(suffix)) {
      if (!all.empty()) all.append(piece.substr(suffix.size()));
    } else {
      if (!all.empty()) all.push_back(' ');
      all.append(piece);
    }
  }
  return attributes_.clean_up_tokenization_spaces ? without_needless_spaces(std::move(all)) : all;
}

namespace {

// Gives the text of each range of ids, [first, last) in a row of `ranges`; of all ids where there are no ranges.
at::Tensor word_piece_texts(const Pool& pool, const at::Tensor& ids, const std::optional<at::Tensor>& ranges,
                            const c10::intrusive_ptr<WordPieceDecoder>& decoder) {
  TORCH_CHECK_VALUE(ids.dim() == 1 || (ids.dim() == 2 && ids.size(0) == 1), "ids must be one row");
  const at::Tensor in = on_host(ids);
  const std::span<const int64_t> all(in.const_data_ptr<int64_t>(), static_cast<size_t>(in.numel()));
  std::vector<int64_t> texts;
  const auto add = [&](int64_t first, int64_t last) {
    TORCH_CHECK_VALUE(first >= 0 && first <= last && last <= std::ssize(all), "a range of ids must lie within the ",
                      all.size(), " that there are: ", first, " to ", last);
    texts.push_back(pool->intern(decoder->text(all.subspan(first, last - first))));
  };
  if (!ranges) {
    add(0, std::ssize(all));
  } else if (ranges->numel() > 0) {
    TORCH_CHECK_VALUE(ranges->dim() == 2 && ranges->size(1) == 2, "positions must be rows of two");
    const at::Tensor rows = on_host(*ranges);
    const auto* const row = rows.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.size(0); ++i) add(row[2 * i], row[2 * i + 1]);
  }
  return at::tensor(texts, at::kLong).to(ids.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  register_saved_class<WordPieceDecoder>(m, "WordPieceDecoder");
  m.def(
      "word_piece_texts(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor ids, Tensor? ranges, "
      "__torch__.torch.classes.onnx_torch.WordPieceDecoder decoder) -> Tensor");
  m.impl("word_piece_texts", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(word_piece_texts));
}

}  // namespace onnxtorch
