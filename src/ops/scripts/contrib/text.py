# NGramHashMapping, NGramRepeatBlock, VarlenNGramHashMapping, WordConvEmbedding.


# Marks the tokens that would complete an n-gram of a row a second time.
def repeating_tokens(input_ids: Tensor, ngram_size: int, vocab_size: int) -> Tensor:
    assert ngram_size > 0, "ngram_size must be positive, not {}".format(ngram_size)
    rows, length = input_ids.size()
    if ngram_size > length:
        return torch.zeros([rows, vocab_size], dtype=torch.bool, device=input_ids.device)
    ngrams = torch.unfold(input_ids, 1, ngram_size, 1)
    last = torch.unsqueeze(torch.slice(input_ids, 1, length - ngram_size + 1), 1)
    repeats = torch.all(torch.slice(ngrams, 2, 0, ngram_size - 1) == last, -1)
    tokens = torch.where(repeats, torch.select(ngrams, 2, ngram_size - 1), 0)
    counts = torch.zeros([rows, vocab_size], dtype=torch.int64, device=input_ids.device)
    return torch.scatter_add(counts, 1, tokens.to(torch.int64), repeats.to(torch.int64)) > 0


def ngram_repeat_block(input_ids: Tensor, scores: Tensor, ngram_size: int) -> Tensor:
    assert input_ids.dim() == 2 and scores.dim() == 2 and input_ids.size(0) == scores.size(0), (
        "input_ids and scores are not of shape (batch_size, ...)"
    )
    return torch.masked_fill(scores, repeating_tokens(input_ids, ngram_size, scores.size(1)), -float("inf"))


# Embeds words. A word is as long as it has ids above 0, and of no length where its first id is not. All its ids are
# looked up, or as many as the window takes where there are fewer. (For a word of no length onnxruntime leaves elements
# as it finds them in memory; here they are 0.)
def word_conv_embedding(
    Sequence: Tensor,
    W: Tensor,
    B: Tensor,
    C: Tensor,
    embedding_size: Optional[int],
    conv_window_size: Optional[int],
    char_embedding_size: Optional[int],
) -> Tensor:
    assert Sequence.dim() == 2 and W.dim() == 4 and C.dim() == 2, "Sequence, W or C has a wrong number of dimensions"
    window = W.size(2)
    assert embedding_size is None or embedding_size == W.size(0), "embedding_size is not that of W"
    assert conv_window_size is None or conv_window_size == window, "conv_window_size is not that of W"
    assert char_embedding_size is None or char_embedding_size == C.size(1), "char_embedding_size is not that of C"
    assert 0 < window and window <= Sequence.size(1), "the window is longer than a word"
    is_char = Sequence > 0
    lengths = torch.sum(is_char, 1, True) * torch.slice(is_char, 1, 0, 1)
    positions = torch.unsqueeze(torch.arange(Sequence.size(1), device=Sequence.device), 0)
    ids = torch.where(positions < torch.clamp_min(lengths, window), Sequence, 0)
    ids = torch.where(lengths > 0, ids, 0)
    chars = torch.reshape(torch.index_select(C, 0, torch.reshape(ids, [-1])), ids.size() + [C.size(1)])
    conv = torch.tanh(torch.squeeze(torch.conv2d(torch.unsqueeze(chars, 1), W, B), 3))
    there = torch.slice(positions, 1, 0, conv.size(2)) <= torch.clamp_min(lengths - window, 0)
    best = torch.amax(torch.masked_fill(conv, torch.logical_not(torch.unsqueeze(there, 1)), -1e12), 2)
    return torch.where(lengths > 0, best, 0.0)


# Places sequences of several lengths in one row, each behind its past of `size` elements. Tells where in the row the
# pasts start, and where each token is.
def places_behind_pasts(lengths: Tensor, size: int) -> Tuple[Tensor, Tensor]:
    requests = torch.arange(lengths.size(0), device=lengths.device)
    tokens = torch.repeat_interleave(requests, lengths)
    starts = torch.cumsum(lengths, 0) - lengths + requests * size
    return starts, torch.arange(tokens.size(0), device=lengths.device) + (tokens + 1) * size


def put_behind_pasts(past: Tensor, row: Tensor, starts: Tensor, now: Tensor) -> Tensor:
    joined = torch.zeros([past.numel() + row.size(0)], dtype=row.dtype, device=row.device)
    before = torch.reshape(windows_from(starts, past.size(1)), [-1])
    return torch.index_copy(torch.index_copy(joined, 0, before, torch.reshape(past, [-1])), 0, now, row)


def windows_from(starts: Tensor, size: int) -> Tensor:
    return torch.unsqueeze(starts, -1) + torch.arange(size, device=starts.device)


def taken_at(row: Tensor, places: Tensor) -> Tensor:
    return torch.reshape(torch.index_select(row, 0, torch.reshape(places, [-1])), places.size())


# Tells whether an element of a row differs from the one before it; the next function, whether that one ends something.
def differs_from_last(row: Tensor) -> Tensor:
    return torch.constant_pad_nd(torch.slice(row, 0, 1) != torch.slice(row, 0, 0, -1), [1, 0], False)


def comes_after(row: Tensor, end: Tensor) -> Tensor:
    return torch.constant_pad_nd(torch.slice(row, 0, 0, -1) == end, [1, 0], False)


# Computes the hashes of the n-grams that end at `now`; what is beyond a cut in the history is read as `missing`.
def ngram_hashes(
    history: Tensor,
    cuts: Tensor,
    now: Tensor,
    missing: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    max_ngram_size: int,
) -> Tensor:
    pieces = torch.cumsum(cuts, 0)
    own = torch.index_select(pieces, 0, now)
    mix = torch.index_select(history, 0, now) * multipliers[0]
    hashes: List[Tensor] = []
    for shift in range(1, max_ngram_size):
        before = now - shift
        reached = torch.index_select(pieces, 0, before) == own
        mix = mix ^ (torch.where(reached, torch.index_select(history, 0, before), missing) * multipliers[shift])
        hashes.append(torch.remainder(torch.unsqueeze(mix, 1), vocab_sizes[shift - 1]))
    return torch.cat(hashes, 1)


def check_ngram_hashes(
    multipliers: Tensor,
    vocab_sizes: Tensor,
    head_offsets: Optional[Tensor],
    eos_token_id: Optional[Tensor],
    max_ngram_size: int,
    n_head_per_ngram: int,
):
    assert max_ngram_size >= 2, "max_ngram_size must be at least 2, not {}".format(max_ngram_size)
    assert n_head_per_ngram > 0, "n_head_per_ngram must be positive, not {}".format(n_head_per_ngram)
    assert multipliers.dim() == 1 and multipliers.size(0) >= max_ngram_size, "there are too few multipliers"
    heads = [(max_ngram_size - 1) * n_head_per_ngram]
    assert vocab_sizes.size() == heads, "vocab_sizes is of shape {}, not {}".format(vocab_sizes.size(), heads)
    assert bool(torch.all(vocab_sizes > 0)), "vocab_sizes must be positive"
    assert head_offsets is None or head_offsets.size() == heads, "head_offsets is not of the shape of vocab_sizes"
    assert eos_token_id is None or eos_token_id.dim() == 0, "eos_token_id must be a scalar"


def past_of_requests(past: Optional[Tensor], otherwise: Tensor, requests: int, size: int) -> Tensor:
    if past is None:
        return torch.expand(otherwise, [requests, size])
    assert past.size() == [requests, size], "a past is of shape {}, not {}".format(past.size(), [requests, size])
    return past


# Computes the hashes of sequences of some lengths in one row. Also gives the last ids and segments of each, and the
# last ids at each of its first tokens.
def packed_ngram_hashes(
    input_ids: Tensor,
    lengths: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    past_ids: Optional[Tensor],
    head_offsets: Optional[Tensor],
    eos_token_id: Optional[Tensor],
    segment_ids: Optional[Tensor],
    past_segment_ids: Optional[Tensor],
    capture_count: Optional[Tensor],
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int,
    state_update_capacity: int,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    check_ngram_hashes(multipliers, vocab_sizes, head_offsets, eos_token_id, max_ngram_size, n_head_per_ngram)
    requests, size = lengths.size(0), max_ngram_size - 1
    pad = torch.full([], pad_id, dtype=input_ids.dtype, device=input_ids.device)
    missing = pad if eos_token_id is None else eos_token_id
    starts, now = places_behind_pasts(lengths, size)
    history = put_behind_pasts(past_of_requests(past_ids, missing, requests, size), input_ids, starts, now)

    segments = torch.zeros_like(input_ids, dtype=torch.int32) if segment_ids is None else segment_ids
    assert segments.size() == input_ids.size(), "segment_ids is not of the shape of input_ids"
    # Without segments of the past, the past belongs to the first segment; a sequence of no tokens has none.
    first = torch.index_select(torch.constant_pad_nd(segments, [0, 1]), 0, torch.cumsum(lengths, 0) - lengths)
    past_segments = past_of_requests(past_segment_ids, torch.unsqueeze(first, 1), requests, size)
    segments = put_behind_pasts(past_segments, segments, starts, now)

    cuts = differs_from_last(segments)
    if reset_on_eos != 0 and eos_token_id is not None:
        cuts = torch.logical_or(cuts, comes_after(history, eos_token_id))
    heads = torch.reshape(vocab_sizes, [size, n_head_per_ngram])
    hash_ids = ngram_hashes(history, cuts, now, missing, multipliers, heads, max_ngram_size)
    if head_offsets is not None:
        hash_ids = hash_ids + head_offsets
    last = windows_from(starts + lengths, size)
    steps = torch.arange(state_update_capacity, device=lengths.device)
    captured = torch.full([requests, state_update_capacity, size], pad_id, dtype=pad.dtype, device=pad.device)
    if capture_count is not None:
        there = torch.unsqueeze(steps, 0) < torch.unsqueeze(torch.minimum(capture_count, lengths), 1)
        places = windows_from(torch.unsqueeze(starts + 1, 1) + torch.where(there, steps, 0), size)
        captured = torch.where(torch.unsqueeze(there, 2), taken_at(history, places), captured)
    return hash_ids, taken_at(history, last), taken_at(segments, last), captured


def ngram_hash_mapping(
    input_ids: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    past_ids: Optional[Tensor],
    head_offsets: Optional[Tensor],
    eos_token_id: Optional[Tensor],
    segment_ids: Optional[Tensor],
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int,
) -> Tuple[Tensor, Tensor]:
    assert input_ids.dim() == 2, "input_ids is not of shape (batch_size, sequence_length)"
    batch, length = input_ids.size()
    lengths = torch.full([batch], length, dtype=torch.int64, device=input_ids.device)
    hash_ids, present_ids, _, _ = packed_ngram_hashes(
        torch.reshape(input_ids, [-1]),
        lengths,
        multipliers,
        vocab_sizes,
        past_ids,
        head_offsets,
        eos_token_id,
        None if segment_ids is None else torch.reshape(segment_ids, [-1]),
        None,
        None,
        max_ngram_size,
        n_head_per_ngram,
        pad_id,
        reset_on_eos,
        0,
    )
    return torch.reshape(hash_ids, [batch, length, hash_ids.size(1)]), present_ids


def varlen_ngram_hash_mapping(
    input_ids: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    cumulative_sequence_length: Tensor,
    past_ids: Optional[Tensor],
    head_offsets: Optional[Tensor],
    eos_token_id: Optional[Tensor],
    segment_ids: Optional[Tensor],
    past_segment_ids: Optional[Tensor],
    capture_count: Optional[Tensor],
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int,
    state_update_capacity: int,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    assert input_ids.dim() == 1 and cumulative_sequence_length.dim() == 1, "input_ids or its lengths are not in one row"
    ends = cumulative_sequence_length.to(torch.int64)
    lengths = torch.slice(ends, 0, 1) - torch.slice(ends, 0, 0, -1)
    assert ends.size(0) > 0 and int(ends[0]) == 0 and int(ends[-1]) == input_ids.size(0), (
        "cumulative_sequence_length does not go from 0 to the number of tokens"
    )
    assert bool(torch.all(lengths > 0)), "cumulative_sequence_length must be strictly increasing"
    assert 0 <= state_update_capacity and state_update_capacity <= 8, "state_update_capacity must be from 0 to 8"
    assert (capture_count is not None) == (state_update_capacity > 0), (
        "capture_count goes with a positive state_update_capacity"
    )
    assert segment_ids is not None or past_segment_ids is None, "past_segment_ids requires segment_ids"
    return packed_ngram_hashes(
        input_ids,
        lengths,
        multipliers,
        vocab_sizes,
        past_ids,
        head_offsets,
        eos_token_id,
        segment_ids,
        past_segment_ids,
        capture_count,
        max_ngram_size,
        n_head_per_ngram,
        pad_id,
        reset_on_eos,
        state_update_capacity,
    )
