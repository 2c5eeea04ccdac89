# GreedySearch, Sampling, BeamSearch and WhisperBeamSearch, except the loop and the calls of the decoder, which are in
# C++.


# Gives the number of tokens that are generated at most.
def search_steps(tokens: Tensor, max_length: int) -> int:
    assert tokens.dim() == 2, "the tokens to start with are not of shape (batch_size, sequence_length)"
    assert max_length > tokens.size(1), "max_length ({}) must be more than the {} tokens there are".format(
        max_length, tokens.size(1)
    )
    return max_length - tokens.size(1)


def beams_of(x: Optional[Tensor], num_beams: int) -> Optional[Tensor]:
    assert num_beams > 0, "num_beams must be positive, not {}".format(num_beams)
    return None if x is None else torch.repeat_interleave(x, num_beams, 0)


# Gives the positions, the mask, and the number of tokens that are no pad tokens. Pad tokens are at position 0, and
# masked unless a mask is given.
def gpt_prompt(input_ids: Tensor, attention_mask: Optional[Tensor], pad_token_id: int) -> Tuple[Tensor, Tensor, Tensor]:
    is_word = input_ids != pad_token_id
    counts = torch.cumsum(is_word, 1)
    mask = is_word.to(torch.int32) if attention_mask is None else attention_mask
    assert mask.size() == input_ids.size(), "attention_mask is not of the shape of input_ids"
    return (torch.clamp_min(counts - 1, 0) * is_word).to(torch.int32), mask, torch.sum(is_word, 1, True)


def no_past(tokens: Tensor, front: List[int], heads: int, size: int, dtype: int) -> Tensor:
    return torch.zeros(front + [tokens.size(0), heads, 0, size], dtype=dtype, device=tokens.device)


# Gives the last tokens, their positions, and the mask of all.
def next_gpt_inputs(sequences: Tensor, mask: Tensor, lengths: Tensor, step: int) -> Tuple[Tensor, Tensor, Tensor]:
    tokens = last_tokens(sequences)
    return tokens, (lengths + step).to(torch.int32), torch.cat([mask, torch.ones_like(tokens)], 1)


def last_tokens(sequences: Tensor) -> Tensor:
    return torch.slice(sequences, 1, -1)


# Gives the tokens that a decoder apart from the encoder starts with.
def first_tokens(input_ids: Tensor, decoder_input_ids: Optional[Tensor], decoder_start_token_id: int) -> Tensor:
    if decoder_input_ids is not None:
        return decoder_input_ids
    return torch.full([input_ids.size(0), 1], decoder_start_token_id, dtype=torch.int32, device=input_ids.device)


# Gives the encoder's mask; unless it is given, pad tokens in front of all others are masked.
def encoder_mask(input_ids: Tensor, attention_mask: Optional[Tensor], pad_token_id: int) -> Tensor:
    if attention_mask is not None:
        return attention_mask
    return (torch.cumsum(input_ids != pad_token_id, 1) > 0).to(torch.int32)


# Gives the logits of the next token. A decoder may have more logits than there are words.
def next_logits(logits: Tensor, vocab_size: int) -> Tensor:
    assert logits.dim() == 3, "the logits are not of shape (batch_size, sequence_length, vocab_size)"
    last = torch.select(logits, 1, -1).to(torch.float32)
    assert vocab_size <= last.size(1), "vocab_size is {}, but there are {} logits".format(vocab_size, last.size(1))
    return torch.slice(last, 1, 0, vocab_size) if vocab_size > 0 else last


def lowest_float() -> float:
    return -3.4028234663852886e38


# Applies the rules to scores. What is forbidden gets the lowest float, as in onnxruntime, so that sums with it stay
# finite.
def processed_scores(
    scores: Tensor,
    sequences: Tensor,
    step: int,
    eos_token_id: int,
    no_repeat_ngram_size: int,
    min_length: Optional[int],
    repetition_penalty: Optional[float],
    vocab_mask: Optional[Tensor],
    prefix_vocab_mask: Optional[Tensor],
    presence_mask: Optional[Tensor],
    temperature: float,
    presence_penalty: float,
) -> Tensor:
    lowest = lowest_float()
    if repetition_penalty is not None and repetition_penalty != 1.0:
        assert repetition_penalty > 0.0, "repetition_penalty must be positive, not {}".format(repetition_penalty)
        is_old = torch.scatter(torch.zeros_like(scores, dtype=torch.bool), 1, sequences.to(torch.int64), True)
        penalized = torch.where(scores < 0, scores * repetition_penalty, scores / repetition_penalty)
        scores = torch.where(is_old, penalized, scores)
    if no_repeat_ngram_size > 0:
        scores = torch.masked_fill(scores, repeating_tokens(sequences, no_repeat_ngram_size, scores.size(1)), lowest)
    if vocab_mask is not None:
        assert vocab_mask.size() == [scores.size(1)], "vocab_mask is not of shape (vocab_size)"
        scores = torch.masked_fill(scores, vocab_mask == 0, lowest)
    if prefix_vocab_mask is not None and step == 0:
        assert prefix_vocab_mask.size() == scores.size(), "prefix_vocab_mask is not of shape (batch_size, vocab_size)"
        scores = torch.masked_fill(scores, prefix_vocab_mask == 0, lowest)
    if min_length is not None and sequences.size(1) < min_length:
        assert 0 <= eos_token_id and eos_token_id < scores.size(1), "eos_token_id is not in the vocabulary"
        scores = torch.index_fill(scores, 1, torch.tensor([eos_token_id], device=scores.device), lowest)
    if temperature > 0.0:
        scores = scores / temperature
    if presence_mask is not None:
        assert presence_mask.size() == scores.size(), "presence_mask is not of shape (batch_size, vocab_size)"
        scores = scores - presence_mask * presence_penalty
    return scores


def filled_up(sequences: Tensor, max_length: int, pad_token_id: int) -> Tensor:
    return torch.constant_pad_nd(sequences, [0, max_length - sequences.size(-1)], pad_token_id)


def none_ended(input_ids: Tensor) -> Tensor:
    return torch.zeros([input_ids.size(0)], dtype=torch.bool, device=input_ids.device)


# Appends tokens, and tells whether any sequence goes on. After its end a sequence has pad tokens, which stand for the
# end as well.
def grown_sequences(
    sequences: Tensor, ended: Tensor, tokens: Tensor, eos_token_id: int, pad_token_id: int
) -> Tuple[bool, Tensor, Tensor]:
    ended = torch.logical_or(ended, tokens == eos_token_id)
    grown = torch.cat([sequences, torch.unsqueeze(torch.where(ended, pad_token_id, tokens), 1).to(torch.int32)], 1)
    return not bool(torch.all(ended)), grown, ended


# --- Sampling


# Drops all but the likely tokens that make up top_p together. Counted from the most likely one on, the one that comes
# to top_p is kept (custom); from the least likely one on, all that do not make up the rest are dropped.
def filtered_scores(
    scores: Tensor, top_p: float, filter_value: float, min_tokens_to_keep: int, custom: bool
) -> Tensor:
    in_order, order = torch.sort(scores, stable=True, dim=1, descending=custom)
    sums = torch.cumsum(torch.softmax(in_order, 1), 1)
    places = torch.arange(scores.size(1), device=scores.device)
    if custom:
        dropped = torch.constant_pad_nd(torch.slice(sums, 1, 0, -1) > top_p, [1, 0], False)
    else:
        dropped = torch.logical_and(sums <= 1 - top_p, places < max(scores.size(1) - min_tokens_to_keep, 1))
    return torch.scatter(scores, 1, order, torch.masked_fill(in_order, dropped, filter_value))


def no_scores(input_ids: Tensor) -> Tensor:
    return torch.zeros([input_ids.size(0), 0], device=input_ids.device)


def sampled_tokens(scores: Tensor, step: int, seed: Optional[int]) -> Tensor:
    return torch.squeeze(multinomial(scores, 1, None if seed is None else (seed + step) % 4294967296), 1)


# --- Beams


# Gives the first scores of beams. All beams of a batch are the same at first, so that all but one count for nothing.
def first_beam_scores(input_ids: Tensor, num_beams: int) -> Tensor:
    beams = torch.arange(input_ids.size(0), device=input_ids.device) % num_beams
    return torch.where(beams == 0, 0.0, -1e9).to(torch.float32)


def added_scores(scores: Tensor, beam_scores: Tensor) -> Tensor:
    return scores + torch.unsqueeze(beam_scores, 1)


# Makes empty lists of the best finished sequences of each batch with their scores, best first. (A sequence that is
# infinitely bad has the lowest float meanwhile, as it comes before none.)
def no_hypotheses(
    input_ids: Tensor, num_beams: int, max_length: int, pad_token_id: int
) -> Tuple[Tensor, Tensor, Tensor]:
    batch = input_ids.size(0) // num_beams
    tokens = torch.full([batch, num_beams, max_length], pad_token_id, dtype=torch.int32, device=input_ids.device)
    scores = torch.full([batch, num_beams], -float("inf"), device=input_ids.device)
    return tokens, scores, torch.zeros([batch], dtype=torch.bool, device=input_ids.device)


def better_hypotheses(
    tokens: Tensor, scores: Tensor, other_tokens: Tensor, other_scores: Tensor
) -> Tuple[Tensor, Tensor]:
    best, order = torch.sort(torch.cat([scores, other_scores], 1), stable=True, dim=1, descending=True)
    chosen = torch.expand(torch.unsqueeze(torch.slice(order, 1, 0, scores.size(1)), 2), tokens.size())
    return torch.gather(torch.cat([tokens, other_tokens], 1), 1, chosen), torch.slice(best, 1, 0, scores.size(1))


# Takes twice as many candidates as there are beams: ends among the better half finish a hypothesis; the others go on.
# The beams of a batch that is done do not matter. Gives whether any goes on, and the beams that the new ones continue.
def beam_step(
    scores: Tensor,
    sequences: Tensor,
    hypotheses: Tensor,
    hypothesis_scores: Tensor,
    done: Tensor,
    num_beams: int,
    eos_token_id: int,
    pad_token_id: int,
    length_penalty: Optional[float],
    early_stopping: bool,
) -> Tuple[bool, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, vocab_size = done.size(0), scores.size(1)
    assert vocab_size > 1, "there must be two words at least"
    power = float(sequences.size(1)) ** (1.0 if length_penalty is None else length_penalty)
    candidates = torch.reshape(scores, [batch, num_beams * vocab_size])
    best, numbers = top_k_by_key(candidates, 2 * num_beams, 1, True)
    tokens = numbers % vocab_size
    first_rows = torch.unsqueeze(torch.arange(batch, device=scores.device) * num_beams, 1)
    rows = torch.div(numbers, vocab_size, rounding_mode="floor") + first_rows
    is_end = tokens == eos_token_id

    is_finished = torch.logical_and(is_end, torch.logical_not(torch.unsqueeze(done, 1)))
    finished_scores = torch.where(is_finished, torch.clamp_min(best / power, lowest_float()), -float("inf"))
    finished_scores = torch.slice(finished_scores, 1, 0, num_beams)
    finished = filled_up(sequences, hypotheses.size(2), pad_token_id)
    finished = torch.reshape(
        torch.index_select(finished, 0, torch.reshape(torch.slice(rows, 1, 0, num_beams), [-1])), hypotheses.size()
    )
    hypotheses, hypothesis_scores = better_hypotheses(hypotheses, hypothesis_scores, finished, finished_scores)

    _, order = torch.sort(is_end.to(torch.int32), stable=True, dim=1)
    order = torch.slice(order, 1, 0, num_beams)
    is_done = torch.unsqueeze(done, 1)
    next_rows = torch.reshape(torch.where(is_done, 0, torch.gather(rows, 1, order)), [-1])
    next_tokens = torch.reshape(torch.where(is_done, pad_token_id, torch.gather(tokens, 1, order)), [-1, 1])
    next_scores = torch.reshape(torch.where(is_done, 0.0, torch.gather(best, 1, order)), [-1])

    worst = torch.select(hypothesis_scores, 1, -1)
    is_full = worst > -float("inf")
    if not early_stopping:
        is_full = torch.logical_and(is_full, worst >= torch.select(best, 1, 0) / power)
    done = torch.logical_or(done, is_full)
    grown = torch.cat([torch.index_select(sequences, 0, next_rows), next_tokens.to(torch.int32)], 1)
    return not bool(torch.all(done)), next_rows, grown, next_scores, hypotheses, hypothesis_scores, done


# Gives the best sequences; those that are open at the end count as finished.
def best_hypotheses(
    sequences: Tensor,
    beam_scores: Tensor,
    hypotheses: Tensor,
    hypothesis_scores: Tensor,
    done: Tensor,
    num_return_sequences: int,
    pad_token_id: int,
    length_penalty: Optional[float],
) -> Tuple[Tensor, Tensor]:
    beams = hypotheses.size(1)
    assert 0 < num_return_sequences and num_return_sequences <= beams, (
        "num_return_sequences ({}) must be from 1 to num_beams ({})".format(num_return_sequences, beams)
    )
    power = float(sequences.size(1)) ** (1.0 if length_penalty is None else length_penalty)
    open_scores = torch.clamp_min(torch.reshape(beam_scores, hypothesis_scores.size()) / power, lowest_float())
    open_scores = torch.masked_fill(open_scores, torch.unsqueeze(done, 1), -float("inf"))
    open_tokens = torch.reshape(filled_up(sequences, hypotheses.size(2), pad_token_id), hypotheses.size())
    tokens, scores = better_hypotheses(hypotheses, hypothesis_scores, open_tokens, open_scores)
    scores = torch.masked_fill(scores, scores <= lowest_float(), -float("inf"))
    return torch.slice(tokens, 1, 0, num_return_sequences), torch.slice(scores, 1, 0, num_return_sequences)


# Joins the scores of all steps, [steps, batches, beams, words]; 0 after all are done.
def scores_of_steps(scores: List[Tensor], num_beams: int, steps: int) -> Tensor:
    all = torch.stack(scores)
    all = torch.reshape(all, [all.size(0), all.size(1) // num_beams, num_beams, all.size(2)])
    return torch.constant_pad_nd(all, [0, 0, 0, 0, 0, 0, 0, steps - all.size(0)])


# --- Whisper


# Applies Whisper's logits_processor 1: time stamps, which are the words from the first of `tokens` on, come in pairs
# (the first one alone), do not decrease, and are taken where they are together likelier than each other word. The other
# elements of `tokens` are words that say that there are no time stamps, or start something: the first two of them never
# come, the others not after a time stamp.
def timestamp_scores(
    scores: Tensor, sequences: Tensor, logits_processor: Optional[int], eos_token_id: int, tokens: List[int]
) -> Tensor:
    if logits_processor is None or logits_processor == 0:
        return scores
    assert logits_processor == 1 and len(tokens) > 0, "there is no logits_processor {}".format(logits_processor)
    lowest, vocab_size, length = lowest_float(), scores.size(1), sequences.size(1)
    begin = tokens[0]
    assert 0 < begin and begin < vocab_size, "beginning_timestamp_token_id is not in the vocabulary"
    words = torch.arange(vocab_size, device=scores.device)
    is_stamp_word = words >= begin
    is_stamp = sequences >= begin
    places = torch.arange(1, length + 1, device=scores.device)
    has_stamp = torch.any(is_stamp, 1, True)
    first = torch.amin(torch.where(is_stamp, places, length), 1, True)  # as the number of tokens up to and with it
    last = torch.gather(sequences, 1, torch.clamp_min(torch.amax(places * is_stamp, 1, True) - 1, 0))
    goes_on = first < length
    ends_so = torch.slice(is_stamp, 1, -1)
    before_end = torch.slice(is_stamp, 1, max(length - 2, 0), max(length - 1, 1))
    ends_in_pair = torch.logical_or(torch.logical_not(goes_on), before_end)
    is_open = torch.logical_and(ends_so, torch.logical_not(ends_in_pair))

    never = torch.logical_or(words == tokens[1], words == tokens[2])
    for token in tokens[3:]:
        never = torch.logical_or(never, torch.logical_and(goes_on, words == token))
    never = torch.logical_or(never, torch.logical_and(torch.logical_and(ends_so, ends_in_pair), is_stamp_word))
    never = torch.logical_or(never, torch.logical_and(is_open, words < eos_token_id))
    least = torch.where(has_stamp, last + torch.logical_not(is_open), begin)
    never = torch.logical_or(never, torch.logical_and(is_stamp_word, words < least))
    never = torch.logical_or(never, torch.logical_and(torch.logical_not(goes_on), words > begin + 50))
    scores = torch.masked_fill(scores, never, lowest)

    stamps = torch.slice(scores, 1, begin)
    sums = torch.logsumexp(torch.masked_fill(stamps, stamps <= lowest, -float("inf")), 1, True)
    is_time = sums > torch.amax(torch.slice(scores, 1, 0, begin), 1, True)
    return torch.masked_fill(scores, torch.logical_and(is_time, torch.logical_not(is_stamp_word)), lowest)


# Gives the probability that a batch has no speech, from the logits that come first.
def no_speech_probs(logits: Tensor, num_beams: int, no_speech_token_id: int) -> Tensor:
    assert 0 <= no_speech_token_id and no_speech_token_id < logits.size(1), "no_speech_token_id is no word"
    return torch.select(torch.softmax(torch.slice(logits, 0, 0, None, num_beams), 1), 1, no_speech_token_id)
