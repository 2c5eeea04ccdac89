# RotaryEmbedding, GroupQueryAttention, MultiHeadAttention and the decoders' forms of attention.


# Rotates x of [batch, heads, sequence, size] by the angles of its positions, which are [batch or 1, sequence];
# embedding refuses those that the caches do not have. As many elements of each row are rotated as the caches have
# angles for.
def rotated(x: Tensor, positions: Tensor, cos_cache: Tensor, sin_cache: Tensor, interleaved: bool) -> Tensor:
    assert cos_cache.dim() == 2 and cos_cache.size() == sin_cache.size(), "cos_cache and sin_cache differ in shape"
    size = 2 * cos_cache.size(1)
    assert size <= x.size(3), "the caches rotate {} elements of heads of {}".format(size, x.size(3))
    cos, sin = torch.embedding(cos_cache, positions), torch.embedding(sin_cache, positions)
    return rotary_embedding(x, cos, sin, None, None, size, interleaved)


# Positions that count on from a first one.
def counted_from(first: Tensor, length: int) -> Tensor:
    return torch.reshape(first, [-1, 1]) + torch.arange(length, device=first.device)


# The kernel knows neither scale nor is_packed_batching.
def rotary_embedding_of_positions(input: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor,
                                  num_heads: int, rotary_embedding_dim: int, interleaved: bool) -> Tensor:
    heads = num_heads
    if num_heads == 0:
        assert rotary_embedding_dim == 0, "rotary_embedding_dim comes with num_heads"
        heads = input.size(-1) // max(2 * cos_cache.size(-1), 1)
    x = input if input.dim() == 4 else split_heads(input, heads)
    size = x.size(3) if rotary_embedding_dim == 0 else rotary_embedding_dim
    assert size == 2 * cos_cache.size(-1), "cos_cache and sin_cache must have {} / 2 columns".format(size)
    positions = position_ids if position_ids.dim() == 2 else counted_from(position_ids, x.size(2))
    y = rotated(x, positions, cos_cache, sin_cache, interleaved)
    return y if input.dim() == 4 else merge_heads(y)


# Query, key and value as [batch, heads, sequence, size], from three inputs or from one that holds them side by side.
def heads_of_group(query: Tensor, key: Optional[Tensor], value: Optional[Tensor], num_heads: int,
                   kv_num_heads: int) -> Tuple[Tensor, Tensor, Tensor]:
    assert query.dim() == 3, "query must have 3 dimensions, not {}".format(query.dim())
    assert num_heads % kv_num_heads == 0, "num_heads must be a multiple of kv_num_heads"
    if key is None or value is None:
        assert key is None and value is None, "key and value come together"
        parts = torch.split_with_sizes(split_heads(query, num_heads + 2 * kv_num_heads),
                                       [num_heads, kv_num_heads, kv_num_heads], 1)
        return parts[0], parts[1], parts[2]
    return split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)


def are_all(numbers: List[int], number: int) -> bool:
    return len(numbers) > 0 and min(numbers) == number and max(numbers) == number


# A past, where new rows go into it.
def fitting_past(past: Tensor, new: Tensor) -> Tensor:
    assert past.dim() == 4 and past.size()[:2] == new.size()[:2] and past.size(3) == new.size(3), (
        "a past of shape {} and new rows of shape {} do not go together".format(past.size(), new.size()))
    return past


# The first rows of a past, as many as `kept` says of each sequence, new rows behind them, and zeros up to `capacity`.
def with_kept_past(past: Optional[Tensor], new: Tensor, kept: List[int], capacity: int) -> Tensor:
    if past is None:
        return padded_rows(new, capacity)
    old = fitting_past(past, new)
    if len(kept) > 0 and are_all(kept, kept[0]):
        return padded_rows(torch.cat([torch.slice(old, 2, 0, kept[0]), new], 2), capacity)
    starts = torch.tensor(kept, dtype=torch.int64, device=new.device)
    old = padded_rows(torch.slice(old, 2, 0, capacity), capacity)
    row = torch.reshape(torch.arange(capacity, device=new.device), [1, 1, -1, 1])
    old = from_bytes(torch.where(row < torch.reshape(starts, [-1, 1, 1, 1]), as_bytes(old), 0), past.dtype)
    return tensor_scatter(old, new, starts, 2, "linear")


def padded_rows(x: Tensor, count: int) -> Tensor:
    if x.size(2) == count:
        return x
    return from_bytes(torch.constant_pad_nd(as_bytes(x), [0, 0, 0, count - x.size(2)], 0), x.dtype)


# --- GroupQueryAttention ---


# Numbers of 4 bits as codes of 0 to 15: plus 8, as two's complements, or floating.
def codes_of_4_bits(x: Tensor, coding: str) -> Tensor:
    if coding == "float4e2m1":
        return small_float_code(torch.ops.onnx_torch.cast_small_float(x, 23, True, "up"), 2, 1, 1).to(torch.uint8)
    numbers = torch.clamp(torch.round(x), -8, 7)
    return (numbers + 8 if coding == "offset" else torch.remainder(numbers, 16)).to(torch.uint8)


def numbers_of_4_bits(codes: Tensor, coding: str) -> Tensor:
    if coding == "float4e2m1":
        return small_float_value(codes, 2, 1, 1)
    numbers = codes.to(torch.float32)
    return numbers - 8 if coding == "offset" else torch.remainder(numbers + 8, 16) - 8


# Rows of a cache of 8 or 4 bits, or as they are where there is no scale. Two numbers of 4 bits make a byte, the first
# of them in its low half.
def quantized_rows(x: Tensor, scale: Optional[Tensor], coding: str, dtype: int) -> Tensor:
    if scale is None:
        return x
    if coding == "int8":
        return quantize_linear(x.to(torch.float32), scale, None, -128, 127, dtype)
    if coding == "float8e4m3fn":
        return torch.clamp(x.to(torch.float32) / scale, -448, 448).to(dtype)
    codes = codes_of_4_bits(x.to(torch.float32) / scale, coding)
    pairs = torch.unflatten(torch.constant_pad_nd(codes, [0, x.size(3) % 2], 0), 3, [-1, 2])
    return torch.select(pairs, 4, 0) + torch.select(pairs, 4, 1) * 16


def dequantized_rows(x: Tensor, scale: Optional[Tensor], coding: str, size: int, dtype: int) -> Tensor:
    if scale is None:
        return x
    if coding == "int8" or coding == "float8e4m3fn":
        return dequantize_linear(x, scale, None, torch.float32).to(dtype)
    halves = torch.flatten(torch.stack([torch.bitwise_and(x, 15), torch.bitwise_right_shift(x, 4)], 4), 3)
    return (numbers_of_4_bits(torch.slice(halves, 3, 0, size), coding) * scale).to(dtype)


# One scale for all, or one for each element of each head.
def scale_of_rows(scale: Optional[Tensor], quant_type: str, heads: int) -> Optional[Tensor]:
    if quant_type == "NONE":
        return None
    assert quant_type == "PER_TENSOR" or quant_type == "PER_CHANNEL", "there is no such quantization as " + quant_type
    assert scale is not None, "a quantized cache needs k_scale and v_scale"
    return one_for_all(scale) if quant_type == "PER_TENSOR" else torch.reshape(scale, [1, heads, 1, -1])


# Which keys each query may attend to, [batch, 1, queries, keys], or None for all of them. A query sees as many keys as
# there are up to its own place, or all of its sequence; a window is what it sees last of those up to its place. The
# queries of padding, which come behind a sequence, attend as its last one does.
def keys_within_reach(lengths: List[int], offsets: List[int], queries: int, keys: int, causal: bool, window: int,
                      device: Device) -> Optional[Tensor]:
    sees_all = not causal or (queries == 1 and are_all(offsets, keys - 1))
    if are_all(lengths, keys) and sees_all and (window < 0 or window >= keys):
        return None
    ends = torch.reshape(torch.tensor(lengths, dtype=torch.int64, device=device), [-1, 1, 1, 1])
    places = torch.unsqueeze(counted_from(torch.tensor(offsets, dtype=torch.int64, device=device) + 1, queries), 1)
    own_ends = torch.minimum(torch.unsqueeze(places, 3), ends)
    key = torch.arange(keys, device=device)
    allowed = key < (own_ends if causal else ends)
    return allowed if window < 0 else torch.logical_and(allowed, key >= own_ends - window)


# Attention by its steps, with what asks for them: a cap, a sink, which takes a share of each row of weights, or the
# scores (0 where they are hidden) or weights as output.
def attention_with_sink(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], allowed: Optional[Tensor],
                        scale: Optional[float], softcap: float, sink: Optional[Tensor],
                        qk_output: int) -> Tuple[Tensor, Tensor]:
    scores = scaled_scores(q.to(torch.float32), k.to(torch.float32), scale)
    if softcap > 0:
        scores = torch.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + bias
    logits = scores
    if allowed is not None:
        scores = torch.where(allowed, scores, 0)
        logits = torch.where(allowed, logits, float("-inf"))
    if sink is None:
        weights = masked_softmax(logits, allowed, torch.float32)
    else:
        column = torch.reshape(sink.to(torch.float32), [1, -1, 1, 1])
        column = torch.expand(column, [logits.size(0), logits.size(1), logits.size(2), 1])
        weights = torch.slice(torch.softmax(torch.cat([logits, column], -1), -1), 3, 0, logits.size(3))
    y = torch.matmul(weights, repeat_heads(v, q.size(1)).to(torch.float32))
    return y.to(q.dtype), (scores if qk_output == 1 else weights).to(q.dtype)


# By ATen's scaled_dot_product_attention where `fused`, which gives no scores or weights.
def attention_of_groups(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], allowed: Optional[Tensor],
                        is_causal: bool, scale: Optional[float], softcap: float, sink: Optional[Tensor],
                        qk_output: int, fused: bool) -> Tuple[Tensor, Tensor]:
    v = fitting_values(q, k, v)
    if fused:
        y = torch.scaled_dot_product_attention(q, k, v, combined_mask(bias, allowed), 0.0, is_causal, scale=scale,
                                               enable_gqa=q.size(1) != k.size(1))
        return y, y
    return attention_with_sink(q, k, v, bias, allowed, scale, softcap, sink, qk_output)


# How many rows a window's cache holds of a sequence: where it runs full, as many go at once as it has beyond the
# window.
def rows_in_window(length: int, capacity: int, window: int) -> int:
    if length <= capacity:
        return length
    gap = capacity - window + 1
    return length - gap * ((length - capacity + gap - 1) // gap)


# `count` items of an axis from a place on that differs between the batches; zeros where there are none.
def shifted(x: Tensor, axis: int, starts: List[int], count: int) -> Tensor:
    rows = as_bytes(torch.movedim(x, axis, 1))
    places = counted_from(torch.tensor(starts, dtype=torch.int64, device=x.device), count)
    places = torch.where(places < rows.size(1), places, rows.size(1))
    filled = torch.cat([rows, torch.zeros_like(torch.slice(rows, 1, 0, 1))], 1)
    batch = torch.unsqueeze(torch.arange(rows.size(0), device=x.device), 1)
    return torch.movedim(from_bytes(filled[batch, places], x.dtype), 1, axis)


def rms_norm_of_heads(x: Tensor, weight: Optional[Tensor], epsilon: float) -> Tensor:
    if weight is None:
        return x
    return torch.rms_norm(x, [x.size(3)], weight, epsilon)


# What queries and keys are rotated by: their places in sequences, unless it is given. Of a prompt's positions the
# kernel uses only the first one.
def positions_of_queries(position_ids: Optional[Tensor], starts: List[int], queries: int, is_prompt: bool,
                         device: Device) -> Tensor:
    if position_ids is None:
        return counted_from(torch.tensor(starts, dtype=torch.int64, device=device), queries)
    if is_prompt:
        return counted_from(torch.slice(torch.reshape(position_ids, [-1]), 0, 0, 1), queries)
    return position_ids


# Of heads of queries, keys and values; where `fused`, by ATen's scaled_dot_product_attention.
def group_query_attention(
    q: Tensor, k: Tensor, v: Tensor, past_key: Optional[Tensor], past_value: Optional[Tensor], seqlens_k: List[int],
    total_sequence_length: int, cos_cache: Optional[Tensor], sin_cache: Optional[Tensor],
    position_ids: Optional[Tensor], attention_bias: Optional[Tensor], head_sink: Optional[Tensor],
    k_scale: Optional[Tensor], v_scale: Optional[Tensor], q_norm_weight: Optional[Tensor],
    k_norm_weight: Optional[Tensor], num_heads: int, kv_num_heads: int, causal: bool, do_rotary: bool,
    rotary_interleaved: bool, local_window_size: int, sliding_window_cache: bool, scale: Optional[float],
    softcap: float, smooth_softmax: bool, qk_output: int, qk_norm_epsilon: float, k_quant_type: str,
    v_quant_type: str, coding: str, cache_dtype: int, fused: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    assert k.size(2) == q.size(2) or k.size(2) == 0, "query and key must have as many rows, or key none"
    assert len(seqlens_k) == q.size(0), "seqlens_k must have a number for each sequence of the batch"
    if q_norm_weight is not None and k_norm_weight is not None:
        q = rms_norm_of_heads(q, q_norm_weight, qk_norm_epsilon)
        k = rms_norm_of_heads(k, k_norm_weight, qk_norm_epsilon)

    # A prompt starts anew, whatever the past holds. Without new keys a step looks into the past alone.
    queries = q.size(2)
    is_prompt = queries == total_sequence_length and not sliding_window_cache
    lengths = [number + 1 for number in seqlens_k]
    starts = [(0 if is_prompt else length - queries) for length in lengths]
    buffer = 0 if past_key is None else past_key.size(2)
    capacity = max(total_sequence_length, buffer)
    most = capacity if past_key is None else buffer
    for start, length in zip(starts, lengths):
        assert start >= 0 and length >= 1, "seqlens_k counts fewer keys than there are queries"
        assert sliding_window_cache or (length <= capacity and start <= most), (
            "seqlens_k counts more keys than past_key and total_sequence_length have")

    if do_rotary:
        assert cos_cache is not None and sin_cache is not None, "do_rotary needs cos_cache and sin_cache"
        positions = positions_of_queries(position_ids, starts, queries, is_prompt, q.device)
        q = rotated(q, positions, cos_cache, sin_cache, rotary_interleaved)
        if k.size(2) > 0:
            k = rotated(k, positions, cos_cache, sin_cache, rotary_interleaved)

    bias = attention_bias
    offsets = starts
    ends = lengths
    if past_key is None:
        offsets = [0 for start in starts]
    if sliding_window_cache:
        assert past_key is not None, "sliding_window_cache needs past_key and past_value"
        assert 0 < local_window_size and local_window_size <= buffer, (
            "local_window_size must be at most the cache's size")
        offsets = [rows_in_window(start, buffer, local_window_size) for start in starts]
        ends = [offset + queries for offset in offsets]
        capacity = max(ends) if len(ends) > 0 else queries
        if bias is not None:
            bias = torch.expand(bias, [q.size(0), -1, -1, -1])
            bias = shifted(bias, 3, ints_arithmetic("Sub", lengths, ends), capacity)
    kept = offsets if k.size(2) > 0 else ends
    key_scale = scale_of_rows(k_scale, k_quant_type, kv_num_heads)
    value_scale = scale_of_rows(v_scale, v_quant_type, kv_num_heads)
    cached_key = with_kept_past(past_key, quantized_rows(k, key_scale, coding, cache_dtype), kept, capacity)
    cached_value = with_kept_past(past_value, quantized_rows(v, value_scale, coding, cache_dtype), kept, capacity)

    keys = max(ends) if len(ends) > 0 else 0
    size = q.size(3)
    k = dequantized_rows(torch.slice(cached_key, 2, 0, keys), key_scale, coding, size, q.dtype)
    v = dequantized_rows(torch.slice(cached_value, 2, 0, keys), value_scale, coding, size, q.dtype)
    if bias is not None:
        bias = torch.slice(bias, 3, 0, keys)
    plain = (causal and bias is None and are_all(ends, keys) and are_all(offsets, 0) and keys == queries
             and (local_window_size < 0 or local_window_size >= keys))
    allowed: Optional[Tensor] = None
    if not (fused and plain):
        allowed = keys_within_reach(ends, offsets, queries, keys, causal, local_window_size, q.device)
    sink = torch.zeros([num_heads], device=q.device) if head_sink is None and smooth_softmax else head_sink
    y, qk = attention_of_groups(q, k, v, bias, allowed, plain, scale, softcap, sink, qk_output, fused)
    if qk_output != 0:
        qk = torch.constant_pad_nd(qk, [0, total_sequence_length - keys], 0)
    if sliding_window_cache:
        rows = [rows_in_window(length, buffer, local_window_size) for length in lengths]
        gone = ints_arithmetic("Sub", ends, rows)
        cached_key, cached_value = shifted(cached_key, 2, gone, buffer), shifted(cached_value, 2, gone, buffer)
    return merge_heads(y), cached_key, cached_value, qk


# --- MultiHeadAttention, DecoderMaskedMultiHeadAttention ---


# Query, key and value side by side in rows: of [batch, sequence, heads, 3, size], of [batch, sequence, 3 * hidden], or,
# only key and value, of [batch, sequence, heads, 2, size].
def unpacked(query: Tensor, key: Optional[Tensor], value: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
    if key is None:
        assert value is None, "value comes with key"
        if query.dim() == 3:
            parts = torch.unflatten(query, 2, [3, -1])
            return torch.select(parts, 2, 0), torch.select(parts, 2, 1), torch.select(parts, 2, 2)
        assert query.dim() == 5 and query.size(3) == 3, (
            "query without a key must be of [batch, sequence, heads, 3, size]")
        parts = torch.flatten(torch.movedim(query, 3, 2), 3)
        return torch.select(parts, 2, 0), torch.select(parts, 2, 1), torch.select(parts, 2, 2)
    if value is None:
        assert key.dim() == 5 and key.size(3) == 2, "key without a value must be of [batch, sequence, heads, 2, size]"
        parts = torch.flatten(torch.movedim(key, 3, 2), 3)
        return query, torch.select(parts, 2, 0), torch.select(parts, 2, 1)
    return query, key, value


# As heads of [batch, heads, sequence, size], which keys and values of another attention are already. Of `bias`, which
# is for query, key and value in turn, they take the part from `start` on.
def biased_heads(x: Tensor, bias: Optional[Tensor], start: int, num_heads: int) -> Tensor:
    if x.dim() == 4:
        return x
    return split_heads(x if bias is None else x + torch.slice(bias, 0, start, start + x.size(2)), num_heads)


# What is added to scores where the padding of keys hides them, [batch, 1, queries or 1, keys]. The mask has a number
# for each key or for each query's key, or the lengths of the sequences, behind which other numbers may follow.
def added_for_padding(mask: Tensor, batch: int, keys: int, filter_value: float, dtype: int) -> Tensor:
    if mask.dim() == 1:
        assert mask.size(0) == batch or mask.size(0) == 3 * batch + 2, (
            "a mask of lengths must have one for each sequence")
        seen = torch.arange(keys, device=mask.device) < torch.reshape(torch.slice(mask, 0, 0, batch), [-1, 1, 1, 1])
    else:
        assert mask.dim() <= 3 and mask.size(-1) == keys, "a mask of shape {} does not fit {} keys".format(
            mask.size(), keys)
        seen = torch.unsqueeze(mask if mask.dim() == 3 else torch.unsqueeze(mask, 1), 1) > 0
    return torch.where(seen, 0.0, filter_value).to(dtype)


# The kernel lets the last query attend to all keys, also where there are more of them than queries.
def keys_before_queries(queries: int, keys: int, past: int, device: Device) -> Tensor:
    query = torch.reshape(torch.arange(queries, device=device), [-1, 1])
    return torch.logical_or(torch.arange(keys, device=device) <= query + past, query == queries - 1)


# Rows of a past of several beams for each sequence, which say of each row whose it is: cache_indirection is [batch,
# beams, length]. From `past` on rows are a beam's own.
def rows_of_beams(x: Tensor, cache_indirection: Tensor, past: int) -> Tensor:
    beams = max(cache_indirection.size(1), 1)
    assert x.size(0) == cache_indirection.size(0) * beams, "cache_indirection does not fit the batch"
    batch = torch.reshape(torch.arange(x.size(0), device=x.device), [-1, 1])
    place = torch.arange(x.size(2), device=x.device)
    beam = torch.slice(torch.flatten(cache_indirection, 0, 1), 1, 0, x.size(2))
    assert beam.size(1) == x.size(2), "cache_indirection is shorter than the past"
    source = torch.where(place < past, batch // beams * beams + beam, batch)
    return torch.movedim(torch.movedim(x, 2, 1)[source, place], 1, 2)


# A past with new rows from `start` on.
def with_rows_at(past: Tensor, new: Tensor, start: int) -> Tensor:
    assert start >= 0 and start + new.size(2) <= past.size(2), (
        "{} rows behind {} do not fit into a past of {}".format(new.size(2), start, past.size(2)))
    return torch.slice_scatter(fitting_past(past, new), new, 2, start, start + new.size(2))


# Where `fused`, by ATen's scaled_dot_product_attention. Where they share a buffer, `past_sequence_length` tells how
# many rows of the past there are, and the present has them and the new ones in the same places.
def multi_head_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], key_padding_mask: Optional[Tensor],
    attention_bias: Optional[Tensor], past_key: Optional[Tensor], past_value: Optional[Tensor],
    past_sequence_length: Optional[int], cache_indirection: Optional[Tensor], num_heads: int, unidirectional: bool,
    scale: Optional[float], mask_filter_value: float, fused: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    width = q.size(-1)
    q = biased_heads(q, bias, 0, num_heads)
    k = present_key = biased_heads(k, bias, width, num_heads)
    v = present_value = biased_heads(v, bias, 2 * width, num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.size(2)
        if past_sequence_length is None:
            k = present_key = with_past(k, past_key)
            v = present_value = with_past(v, past_value)
        else:
            past = past_sequence_length
            end = past + k.size(2)
            present_key, present_value = with_rows_at(past_key, k, past), with_rows_at(past_value, v, past)
            k, v = torch.slice(present_key, 2, 0, end), torch.slice(present_value, 2, 0, end)
        if cache_indirection is not None:
            k, v = rows_of_beams(k, cache_indirection, past), rows_of_beams(v, cache_indirection, past)
    v = fitting_values(q, k, v)

    queries, keys = q.size(2), k.size(2)
    added = attention_bias
    if key_padding_mask is not None:
        padding = added_for_padding(key_padding_mask, q.size(0), keys, mask_filter_value, q.dtype)
        added = padding if added is None else added + padding
    causal = unidirectional and queries > 1
    plain = causal and added is None and past == 0 and keys == queries
    allowed: Optional[Tensor] = None
    if causal and not (fused and plain):
        allowed = keys_before_queries(queries, keys, past, q.device)
    if fused:
        y = torch.scaled_dot_product_attention(q, k, v, combined_mask(added, allowed), 0.0, plain, scale=scale)
        return merge_heads(y), present_key, present_value, y
    scores = scaled_scores(q, k, scale)
    if added is not None:
        scores = scores + added
    if allowed is not None:
        scores = torch.where(allowed, scores, -3.4028234663852886e38)
    return merge_heads(torch.matmul(torch.softmax(scores, -1), v)), present_key, present_value, scores


# --- MRotaryEmbedding, GemmaRotaryEmbedding ---


# Which of the three streams of positions each angle belongs to: one after the other, or every third one is of the
# second stream and every third of the third, as far as their sections go.
def streams_of_angles(mrope_section: List[int], in_turn: bool) -> List[int]:
    assert len(mrope_section) == 3 and min(mrope_section) >= 0, "mrope_section must be three counts"
    if in_turn:
        streams: List[int] = []
        for i in range(mrope_section[0] + mrope_section[1] + mrope_section[2]):
            streams.append(i % 3 if i < 3 * mrope_section[i % 3] else 0)
        return streams
    return [0] * mrope_section[0] + [1] * mrope_section[1] + [2] * mrope_section[2]


# The kernel does not know is_packed_batching; it has a scale for sines and cosines.
def mrotary_embedding(input: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor,
                      mrope_section: List[int], num_heads: int, rotary_embedding_dim: int, interleaved: bool,
                      mrope_layout: int, scale: float) -> Tensor:
    x = input if input.dim() == 4 else split_heads(input, num_heads)
    assert position_ids.dim() == 3 and position_ids.size(0) == 3, "position_ids must be of [3, batch, sequence]"
    assert mrope_layout == 0 or mrope_layout == 1, "mrope_layout must be 0 or 1"
    streams = torch.tensor(streams_of_angles(mrope_section, mrope_layout == 1), dtype=torch.int64, device=x.device)
    columns = torch.arange(cos_cache.size(1), device=x.device)
    size = x.size(3) if rotary_embedding_dim == 0 else rotary_embedding_dim
    assert size == 2 * streams.size(0) and size == 2 * columns.size(0) and cos_cache.size() == sin_cache.size(), (
        "mrope_section, cos_cache and sin_cache must have {} / 2 angles".format(size))
    cos = torch.movedim(torch.embedding(cos_cache, position_ids)[streams, :, :, columns], 0, 2)
    sin = torch.movedim(torch.embedding(sin_cache, position_ids)[streams, :, :, columns], 0, 2)
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    y = rotary_embedding(x, cos, sin, None, None, size, interleaved)
    return y if input.dim() == 4 else merge_heads(y)


def gemma_rotary_embedding(emb: Tensor, q: Tensor, q_rot: Tensor, k: Tensor, k_rot: Tensor) -> Tuple[Tensor, Tensor]:
    sin, cos = torch.unsqueeze(torch.sin(emb).to(q.dtype), 1), torch.unsqueeze(torch.cos(emb).to(q.dtype), 1)
    return q * cos + q_rot * sin, k * cos + k_rot * sin


# --- SparseAttention ---


# The mask of blocks that its rows' borders and the columns of its entries tell, [layouts, rows, columns]; entries
# behind the last row are padding.
def mask_of_blocks(block_row_indices: Tensor, block_col_indices: Tensor) -> Tensor:
    assert block_row_indices.dim() == 2 and block_col_indices.dim() == 2, "the indices of blocks have 2 dimensions"
    layouts, rows, entries = block_row_indices.size(0), block_row_indices.size(1) - 1, block_col_indices.size(1)
    entry = torch.expand(torch.arange(entries, device=block_row_indices.device), [layouts, entries])
    row = torch.searchsorted(torch.slice(block_row_indices, 1, 1).to(torch.int64).contiguous(), entry.contiguous(),
                             right=True)
    column = torch.where(row < rows, block_col_indices, 0)
    layout = torch.unsqueeze(torch.arange(layouts, device=row.device), 1)
    mask = torch.zeros([layouts, rows + 1, rows], dtype=torch.bool, device=row.device)
    return torch.slice(torch.index_put(mask, [layout, row, column], torch.ones_like(row, dtype=torch.bool)), 1, 0, rows)


def rows_written(past: Tensor, new: Tensor, starts: List[int]) -> Tensor:
    if len(starts) > 0 and are_all(starts, starts[0]):
        return with_rows_at(past, new, starts[0])
    first = torch.tensor(starts, dtype=torch.int64, device=new.device)
    return tensor_scatter(fitting_past(past, new), new, first, 2, "linear")


def sparse_attention(
    query: Tensor, key: Optional[Tensor], value: Optional[Tensor], past_key: Tensor, past_value: Tensor,
    block_row_indices: Tensor, block_col_indices: Tensor, total_sequence_length: int,
    key_total_sequence_lengths: List[int], cos_cache: Optional[Tensor], sin_cache: Optional[Tensor], num_heads: int,
    kv_num_heads: int, sparse_block_size: int, do_rotary: bool, rotary_interleaved: bool, scale: Optional[float]
) -> Tuple[Tensor, Tensor, Tensor]:
    q, k, v = heads_of_group(query, key, value, num_heads, kv_num_heads)
    queries, lengths = q.size(2), key_total_sequence_lengths
    assert sparse_block_size > 0, "sparse_block_size must be positive"
    assert len(lengths) == q.size(0), "key_total_sequence_lengths must have a number for each sequence of the batch"
    is_prompt = queries == total_sequence_length
    starts = [(0 if is_prompt else length - queries) for length in lengths]
    keys = max(lengths) if len(lengths) > 0 else 0
    assert len(lengths) == 0 or (min(starts) >= 0 and min(lengths) >= 1 and keys <= past_key.size(2)), (
        "key_total_sequence_lengths do not fit the queries and the cache")
    first = torch.tensor(starts, dtype=torch.int64, device=q.device)
    positions = counted_from(first, queries)
    if do_rotary:
        assert cos_cache is not None and sin_cache is not None, "do_rotary needs cos_cache and sin_cache"
        q = rotated(q, positions, cos_cache, sin_cache, rotary_interleaved)
        k = rotated(k, positions, cos_cache, sin_cache, rotary_interleaved)
    present_key, present_value = rows_written(past_key, k, starts), rows_written(past_value, v, starts)

    blocks = mask_of_blocks(block_row_indices, block_col_indices)
    layout = torch.reshape(torch.remainder(torch.arange(num_heads, device=q.device), blocks.size(0)), [-1, 1, 1])
    row = torch.reshape(torch.div(positions, sparse_block_size, rounding_mode="floor"), [-1, 1, queries, 1])
    column = torch.div(torch.arange(keys, device=q.device), sparse_block_size, rounding_mode="floor")
    seen = blocks[layout, row, column]
    allowed = keys_within_reach(lengths, starts, queries, keys, True, -1, q.device)
    k, v = torch.slice(present_key, 2, 0, keys), torch.slice(present_value, 2, 0, keys)
    y, _ = attention_of_groups(q, k, v, None, both(allowed, seen), False, scale, 0.0, None, 0, True)
    return merge_heads(y), present_key, present_value


# --- DecoderMaskedSelfAttention, DecoderAttention ---


# A shared buffer of keys, [batch, heads, length, size], has their elements in groups of 16 bytes: [batch, heads,
# groups, length, elements of a group].
def keys_in_order(x: Tensor) -> Tensor:
    group = 16 // x.element_size()
    return torch.flatten(torch.transpose(torch.reshape(x, [x.size(0), x.size(1), -1, x.size(2), group]), 2, 3), 3)


def keys_in_groups(x: Tensor) -> Tensor:
    group = 16 // x.element_size()
    return torch.reshape(torch.transpose(torch.unflatten(x, 3, [-1, group]), 2, 3), x.size())


# Rows at one position, whose heads are rotated by its multiples of the powers of 1 / 10000, halves against each other.
def rotated_at(x: Tensor, num_heads: int, position: int) -> Tensor:
    heads = split_heads(x, num_heads)
    size = heads.size(3)
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=x.device) / size
    angles = torch.reshape(position / torch.pow(10000.0, exponents), [1, 1, -1])
    cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
    return merge_heads(rotary_embedding(heads, cos, sin, None, None, size, False))


def decoder_masked_self_attention(input: Tensor, weights: Tensor, bias: Tensor, mask_index: Optional[Tensor],
                                  past: Tensor, attention_bias: Optional[Tensor], past_sequence_length: int,
                                  cache_indirection: Optional[Tensor], num_heads: int, do_rotary: bool, is_shared: bool,
                                  scale: Optional[float], mask_filter_value: float) -> Tuple[Tensor, Tensor]:
    assert past.dim() == 5 and past.size(0) == 2, "past must be of [2, batch, heads, sequence, size]"
    hidden = past.size(2) * past.size(4)
    qkv = torch.matmul(input, weights) + bias
    parts = torch.split_with_sizes(qkv, [hidden, hidden, qkv.size(2) - 2 * hidden], 2)
    q, k, v = parts[0], parts[1], parts[2]
    if do_rotary:
        q, k = rotated_at(q, num_heads, past_sequence_length), rotated_at(k, num_heads, past_sequence_length)
    past_key, past_value = torch.select(past, 0, 0), torch.select(past, 0, 1)
    length: Optional[int] = None
    if is_shared:
        length = past_sequence_length
        past_key = keys_in_order(past_key)
    y, present_key, present_value, _ = multi_head_attention(
        q, k, v, None, mask_index, attention_bias, past_key, past_value, length,
        cache_indirection, num_heads, False, scale, mask_filter_value, True)
    return y, torch.stack([keys_in_groups(present_key) if is_shared else present_key, present_value])


# Of [sequence, batch, hidden]. With a past and static_kv the cache has all keys and values; otherwise they are made of
# `key`, or, of attention to itself, of `query`. True in key_padding_mask hides a key.
def decoder_attention(query: Tensor, key: Tensor, q_weight: Tensor, kv_weight: Tensor, bias: Tensor,
                      key_padding_mask: Optional[Tensor], key_cache: Optional[Tensor], value_cache: Optional[Tensor],
                      static_kv: bool, use_past: bool, has_layer_state: bool, has_key_padding_mask: bool,
                      num_heads: int) -> Tuple[Tensor, Tensor, Tensor]:
    hidden = query.size(2)
    q = split_heads(torch.transpose(torch.matmul(query, q_weight) + torch.slice(bias, 0, 0, hidden), 0, 1), num_heads)
    kv = torch.matmul(key if static_kv else query, kv_weight) + torch.slice(bias, 0, hidden)
    parts = torch.chunk(torch.transpose(kv, 0, 1), 2, 2)
    k, v = split_heads(parts[0], num_heads), split_heads(parts[1], num_heads)
    if use_past and has_layer_state:
        assert key_cache is not None and value_cache is not None, "a past needs key_cache and value_cache"
        k = key_cache if static_kv else with_past(k, key_cache)
        v = value_cache if static_kv else with_past(v, value_cache)
    mask: Optional[Tensor] = None
    if has_key_padding_mask:
        assert key_padding_mask is not None, "has_key_padding_mask needs key_padding_mask"
        assert key_padding_mask.size(-1) == k.size(2), "key_padding_mask must have a number for each key"
        mask = torch.logical_not(torch.unsqueeze(torch.unsqueeze(key_padding_mask, 1), 1))
    y = torch.scaled_dot_product_attention(q, k, fitting_values(q, k, v), mask, 0.0, False)
    return torch.transpose(merge_heads(y), 0, 1), k, v


# --- PagedAttention, SparsePagedAttention ---


def unsqueezed(x: Optional[Tensor]) -> Optional[Tensor]:
    return None if x is None else torch.unsqueeze(x, 0)


# Rotates the elements from `offset` on.
def rotated_from(x: Tensor, offset: int, positions: Tensor, cos_cache: Tensor, sin_cache: Tensor,
                 interleaved: bool) -> Tensor:
    assert offset >= 0, "rotary_offset must not be negative"
    if offset == 0:
        return rotated(x, positions, cos_cache, sin_cache, interleaved)
    turned = rotated(torch.slice(x, 3, offset), positions, cos_cache, sin_cache, interleaved)
    return torch.cat([torch.slice(x, 3, 0, offset), turned], 3)


# How many tokens of each sequence are new.
def counts_of_new(cumulative_sequence_length: List[int], past_seqlens: List[int], tokens: int) -> List[int]:
    assert len(cumulative_sequence_length) == len(past_seqlens) + 1, "cumulative_sequence_length has a number too few"
    counts: List[int] = []
    last = cumulative_sequence_length[0]
    assert last == 0, "cumulative_sequence_length must begin with 0"
    for number, past in zip(cumulative_sequence_length[1:], past_seqlens):
        assert number >= last and past >= 0, "cumulative_sequence_length must not fall, nor past_seqlens be negative"
        counts.append(number - last)
        last = number
    assert last == tokens, "cumulative_sequence_length must end with the number of tokens"
    return counts


# Where positions of sequences lie in the blocks of a cache, as rows of all of them; -1 where there is no block.
def slots_in_blocks(block_table: Tensor, sequence: Tensor, position: Tensor, block_size: int) -> Tensor:
    block = block_table[sequence, torch.div(position, block_size, rounding_mode="floor")].to(torch.int64)
    return torch.where(block < 0, -1, block * block_size + torch.remainder(position, block_size))


# A cache of [blocks, rows, heads, size] with new rows of [1, heads, tokens, size], but for those without a slot.
def with_rows_in_slots(cache: Tensor, new: Tensor, slots: Tensor) -> Tensor:
    assert cache.dim() == 4 and cache.size(2) == new.size(1) and cache.size(3) == new.size(3), (
        "a cache of shape {} does not take rows of shape {}".format(cache.size(), new.size()))
    rows = as_bytes(torch.flatten(cache, 0, 1))
    rows = torch.cat([torch.zeros([1] + rows.size()[1:], dtype=rows.dtype, device=rows.device), rows])
    places = torch.clamp_min(slots, -1) + 1
    rows = torch.index_put(rows, [places], as_bytes(torch.transpose(torch.squeeze(new, 0), 0, 1)))
    return torch.reshape(from_bytes(torch.slice(rows, 0, 1), cache.dtype), cache.size())


# The rows of slots of [batch, keys], as [batch, heads, keys, size].
def rows_in_slots(cache: Tensor, slots: Tensor) -> Tensor:
    rows = as_bytes(torch.flatten(cache, 0, 1))[torch.clamp_min(slots, 0)]
    return from_bytes(torch.transpose(rows, 1, 2), cache.dtype)


# Of each token the entries below `length` that it selects, [tokens, length].
def selected_entries(selected_indices: Tensor, selected_counts: Tensor, length: int) -> Tensor:
    device = selected_indices.device
    counted = torch.arange(selected_indices.size(1), device=device) < torch.unsqueeze(selected_counts, 1)
    valid = both(counted, torch.logical_and(selected_indices >= 0, selected_indices < length))
    mask = torch.zeros([selected_indices.size(0), length + 1], dtype=torch.bool, device=device)
    places = torch.where(valid, selected_indices, length).to(torch.int64)
    return torch.slice(torch.scatter(mask, 1, places, True), 1, 0, length)


# Keys or values, and behind them those of an auxiliary cache of [batch, length, heads or 1, size].
def with_auxiliary(x: Tensor, auxiliary: Tensor) -> Tensor:
    return torch.cat([x, torch.expand(torch.transpose(auxiliary, 1, 2), [-1, x.size(1), -1, -1])], 2)


# Of sequences' tokens, side by side: how many of each are new, the sequence of each, and its place among the new ones.
def places_of_tokens(cumulative_sequence_length: List[int], past_seqlens: List[int],
                     tokens: int, device: Device) -> Tuple[List[int], Tensor, Tensor]:
    counts = counts_of_new(cumulative_sequence_length, past_seqlens, tokens)
    sequences = torch.arange(len(counts), device=device)
    sequence = torch.repeat_interleave(sequences, torch.tensor(counts, dtype=torch.int64, device=device))
    first = torch.tensor(cumulative_sequence_length, dtype=torch.int64, device=device)
    return counts, sequence, torch.arange(tokens, device=device) - first[sequence]


# Of tokens, which belong to sequences one after the other; keys and values lie in blocks. A value is the beginning of
# its key where `latent`. Where tokens select entries, of the cache or of an auxiliary one, they attend to those, and
# where `with_local` to what they see anyway besides.
def paged_attention(
    query: Tensor, key: Optional[Tensor], value: Optional[Tensor], key_cache: Tensor, value_cache: Optional[Tensor],
    cumulative_sequence_length: List[int], past_seqlens: List[int], block_table: Tensor, cos_cache: Optional[Tensor],
    sin_cache: Optional[Tensor], slot_mapping: Optional[Tensor], head_sink: Optional[Tensor],
    q_norm_weight: Optional[Tensor], k_norm_weight: Optional[Tensor], k_scale: Optional[Tensor],
    v_scale: Optional[Tensor], selected_indices: Optional[Tensor], selected_counts: Optional[Tensor],
    auxiliary_key: Optional[Tensor], auxiliary_value: Optional[Tensor], auxiliary_lengths: Optional[Tensor],
    num_heads: int, kv_num_heads: int, is_causal: bool, do_rotary: bool, rotary_interleaved: bool, rotary_offset: int,
    local_window_size: int, scale: Optional[float], softcap: float, qk_norm_epsilon: float, k_quant_type: str,
    v_quant_type: str, k_coding: str, v_coding: str, latent: bool, v_head_size: int, with_local: bool,
    from_auxiliary: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    if latent:
        assert key is not None and value is None and value_cache is None, "a latent cache takes keys alone"
        q, k = split_heads(torch.unsqueeze(query, 0), num_heads), split_heads(torch.unsqueeze(key, 0), kv_num_heads)
        v = k
    else:
        q, k, v = heads_of_group(torch.unsqueeze(query, 0), unsqueezed(key), unsqueezed(value), num_heads, kv_num_heads)
    q, k = rms_norm_of_heads(q, q_norm_weight, qk_norm_epsilon), rms_norm_of_heads(k, k_norm_weight, qk_norm_epsilon)
    device, size, block_size = q.device, q.size(3), key_cache.size(1)

    counts, sequence, place = places_of_tokens(cumulative_sequence_length, past_seqlens, q.size(2), device)
    lengths = ints_arithmetic("Add", past_seqlens, counts)
    batch, queries = len(counts), max(counts) if len(counts) > 0 else 0
    keys = max(lengths) if len(lengths) > 0 else 0
    assert keys <= block_table.size(1) * block_size, "past_seqlens and new tokens go beyond the blocks of block_table"
    position = place + torch.tensor(past_seqlens, dtype=torch.int64, device=device)[sequence]
    if do_rotary:
        assert cos_cache is not None and sin_cache is not None, "do_rotary needs cos_cache and sin_cache"
        at = torch.unsqueeze(position, 0)
        q = rotated_from(q, rotary_offset, at, cos_cache, sin_cache, rotary_interleaved)
        k = rotated_from(k, rotary_offset, at, cos_cache, sin_cache, rotary_interleaved)

    # New rows go into the cache, from which each sequence's are taken in their order.
    written = slots_in_blocks(block_table, sequence, position, block_size) if slot_mapping is None else slot_mapping
    every = torch.unsqueeze(torch.arange(batch, device=device), 1)
    slots = slots_in_blocks(block_table, every, torch.arange(keys, device=device), block_size)
    ends = torch.reshape(torch.tensor(lengths, dtype=torch.int64, device=device), [-1, 1])
    slots = torch.where(torch.arange(keys, device=device) < ends, slots, -1)
    key_scale = scale_of_rows(k_scale, k_quant_type, kv_num_heads)
    key_cache = with_rows_in_slots(key_cache, quantized_rows(k, key_scale, k_coding, key_cache.dtype), written)
    k = dequantized_rows(rows_in_slots(key_cache, slots), key_scale, k_coding, size, q.dtype)
    if value_cache is None:
        value_cache = key_cache
        v = torch.slice(k, 3, 0, size if v_head_size == 0 else v_head_size)
    else:
        value_scale = scale_of_rows(v_scale, v_quant_type, kv_num_heads)
        v = quantized_rows(v, value_scale, v_coding, value_cache.dtype)
        value_cache = with_rows_in_slots(value_cache, v, written)
        v = dequantized_rows(rows_in_slots(value_cache, slots), value_scale, v_coding, size, q.dtype)

    # Each sequence's queries in a row of its own, which is as long as the longest one.
    first = torch.tensor(cumulative_sequence_length[:-1], dtype=torch.int64, device=device)
    tokens = torch.clamp_max(counted_from(first, queries), max(q.size(2) - 1, 0))
    q = torch.transpose(torch.squeeze(q, 0)[:, tokens], 0, 1)
    exists = torch.unsqueeze(torch.unsqueeze(slots >= 0, 1), 1)
    local = keys_within_reach(lengths, past_seqlens, queries, keys, is_causal, local_window_size, device)
    allowed = torch.expand(both(local, exists), [batch, 1, queries, keys])
    if selected_indices is not None and selected_counts is not None:
        if not with_local:
            allowed = torch.zeros_like(allowed)
        count = keys
        if from_auxiliary:
            assert auxiliary_key is not None, "selected entries of an auxiliary cache need auxiliary_key"
            count = auxiliary_key.size(1)
            k = with_auxiliary(k, auxiliary_key)
            v = with_auxiliary(v, auxiliary_key if auxiliary_value is None else auxiliary_value)
        chosen = torch.unsqueeze(selected_entries(selected_indices, selected_counts, count)[tokens], 1)
        if from_auxiliary:
            if auxiliary_lengths is not None:
                ends = torch.reshape(auxiliary_lengths, [-1, 1, 1, 1])
                chosen = torch.logical_and(chosen, torch.arange(count, device=device) < ends)
            allowed = torch.cat([allowed, chosen], 3)
        else:
            seen = keys_within_reach(lengths, past_seqlens, queries, keys, is_causal, -1, device)
            allowed = torch.logical_or(allowed, both(seen, torch.logical_and(chosen, exists)))
    fused = softcap == 0 and head_sink is None
    y, _ = attention_of_groups(q, k, v, None, allowed, False, scale, softcap, head_sink, 0, fused)
    return torch.flatten(torch.transpose(y, 1, 2)[sequence, place], 1), key_cache, value_cache


# --- SparseAttentionIndexer, PackedSparseAttentionIndexer ---
# Which entries each query is to attend to: blocks of tokens ("qsa"), or what windows of tokens are compressed to
# ("csa").


# Angles of positions of [batch, count], from a table for all of the batch or for each of it. Positions beyond it take
# its last row.
def angles_of(cache: Tensor, position: Tensor) -> Tensor:
    assert cache.dim() == 2 or cache.dim() == 3, "cos_cache and sin_cache must have 2 or 3 dimensions"
    rows = torch.clamp(position, 0, cache.size(-2) - 1)
    if cache.dim() == 2:
        return cache[rows].to(torch.float32)
    return cache[torch.unsqueeze(torch.arange(position.size(0), device=cache.device), 1), rows].to(torch.float32)


# Rotates halves of the first elements, as many as there are angles, or else pairs of the last ones, an angle for each.
def rotated_by(x: Tensor, cos: Tensor, sin: Tensor, trailing: bool) -> Tensor:
    if trailing:
        first = x.size(-1) - 2 * cos.size(-1)
        assert first >= 0, "cos_cache and sin_cache have angles for more elements than a head has"
        y = torch.slice(x, -1, first)
        y = y * of_both(cos, True) + quarter_turn(y, 0, True) * of_both(sin, True)
        return torch.cat([torch.slice(x, -1, 0, first), y], -1)
    assert cos.size(-1) <= x.size(-1), "cos_cache and sin_cache have angles for more elements than a head has"
    y = torch.slice(x, -1, 0, cos.size(-1))
    y = y * cos + quarter_turn(y, cos.size(-1) // 2, False) * sin
    return torch.cat([y, torch.slice(x, -1, cos.size(-1))], -1)


def scaled_to_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    x = x.to(torch.float32)
    return torch.rms_norm(x, [x.size(-1)], weight.to(torch.float32), epsilon)


# Heads of queries, normalized and rotated, [batch, sequence, heads, size].
def index_queries(query: Tensor, weight: Tensor, epsilon: float, cos_cache: Tensor, sin_cache: Tensor,
                  position: Tensor, trailing: bool) -> Tensor:
    q = scaled_to_norm(torch.unflatten(query, 2, [-1, weight.size(0)]), weight, epsilon)
    cos, sin = angles_of(cos_cache, position), angles_of(sin_cache, position)
    return rotated_by(q, torch.unsqueeze(cos, 2), torch.unsqueeze(sin, 2), trailing)


# Means of blocks of tokens, [batch, blocks, tokens, size], normalized and rotated.
def index_keys(blocks: Tensor, weight: Tensor, epsilon: float, cos_cache: Tensor, sin_cache: Tensor,
               position: Tensor) -> Tensor:
    keys = scaled_to_norm(torch.mean(blocks.to(torch.float32), 2), weight, epsilon)
    return rotated_by(keys, angles_of(cos_cache, position), angles_of(sin_cache, position), False)


# The first `count` places of each row by falling values, the smaller of equal ones first.
def places_by_score(scores: Tensor, count: int) -> Tensor:
    _, places = torch.sort(scores, stable=True, dim=-1, descending=True)
    return torch.slice(places, -1, 0, count)


# Of rows of queries: the tokens of the best blocks, behind them those of the block that is not full, and -1; and how
# many they are. `tokens` are those that a query sees, as many as `seen`, and blocks are of them.
def selected_tokens(scores: Tensor, tokens: Tensor, seen: Tensor, ratio: int, budget: int) -> Tuple[Tensor, Tensor]:
    rows, capacity, device = scores.size(0), budget + ratio - 1, scores.device
    blocks = torch.unsqueeze(torch.div(seen, ratio, rounding_mode="floor"), 1)
    block = torch.arange(scores.size(1), device=device)
    best = places_by_score(torch.where(block < blocks, scores, float("-inf")), budget // ratio)
    within = torch.arange(ratio, device=device)
    inside = torch.flatten(torch.unsqueeze(best * ratio, 2) + within, 1)
    rank = torch.repeat_interleave(torch.arange(best.size(1), device=device), ratio)
    chosen = torch.where(rank < blocks, torch.gather(tokens, 1, inside), -1)
    chosen = torch.constant_pad_nd(chosen, [0, capacity + 1 - chosen.size(1)], -1)
    left = torch.unsqueeze(seen, 1) - blocks * ratio
    emitted = torch.clamp_max(blocks, best.size(1)) * ratio
    tail = torch.clamp_max(blocks * ratio + within, max(tokens.size(1) - 1, 0))
    places = torch.where(within < left, emitted + within, capacity)
    chosen = torch.scatter(chosen, 1, places, torch.gather(tokens, 1, tail)) if tokens.size(1) > 0 else chosen
    return torch.slice(chosen, 1, 0, capacity).to(torch.int32), torch.reshape(emitted + left, [rows]).to(torch.int32)


# How many blocks or windows a query at a position has behind it.
def whole_windows(position: Tensor, ratio: int) -> Tensor:
    return torch.div(torch.clamp_min(position, -1) + 1, ratio, rounding_mode="floor")


# Of rows of queries: the best of the entries before `ends`, and -1; and how many they are.
def selected_windows(scores: Tensor, ends: Tensor, count: int) -> Tuple[Tensor, Tensor]:
    allowed = torch.arange(scores.size(1), device=scores.device) < torch.unsqueeze(ends, 1)
    best = places_by_score(torch.where(allowed, scores, float("-inf")), count)
    best = torch.where(best < torch.unsqueeze(ends, 1), best, -1)
    best = torch.constant_pad_nd(best, [0, count - best.size(1)], -1).to(torch.int32)
    return best, torch.sum(best >= 0, 1).to(torch.int32)


# What windows of `ratio` tokens are compressed to, which `kv` and `gate` of [batch, tokens, 2 * size] make up behind
# `before` tokens of a window before them: sums by a softmax over its first half's numbers and their own second half's.
def compressed_windows(kv: Tensor, gate: Tensor, before: int, position_bias: Tensor, ratio: int, weight: Tensor,
                       epsilon: float, cos_cache: Tensor, sin_cache: Tensor, first: int) -> Tensor:
    size = weight.size(0)
    kv, gate = kv.to(torch.float32), gate.to(torch.float32)
    if before == 0:
        kv = torch.constant_pad_nd(kv, [0, 0, ratio, 0], 0)
        gate = torch.constant_pad_nd(gate, [0, 0, ratio, 0], float("-inf"))
    windows = kv.size(1) // ratio - 1
    kv = torch.unflatten(torch.slice(kv, 1, 0, (windows + 1) * ratio), 1, [windows + 1, ratio])
    gate = torch.unflatten(torch.slice(gate, 1, 0, (windows + 1) * ratio), 1, [windows + 1, ratio]) + position_bias
    values = torch.cat([kv[:, :-1, :, :size], kv[:, 1:, :, size:]], 2)
    logits = torch.cat([gate[:, :-1, :, :size], gate[:, 1:, :, size:]], 2)
    pooled = torch.where(torch.isfinite(torch.amax(logits, 2)), torch.sum(torch.softmax(logits, 2) * values, 2), 0)
    position = torch.expand((torch.arange(windows, device=kv.device) + first) * ratio, [kv.size(0), windows])
    return rotated_by(scaled_to_norm(pooled, weight, epsilon), angles_of(cos_cache, position),
                      angles_of(sin_cache, position), True)


# How many tokens stay for the next windows: those of the last whole one, and what is behind it.
def kept_for_windows(tokens: int, before: int, windows: int, ratio: int) -> int:
    return tokens - before - windows * ratio + (ratio if windows > 0 else before)


# Keys of [batch, rows, size] behind the first `length` ones of a past, which a buffer keeps in their places.
def with_new_keys(past: Tensor, new: Tensor, length: Optional[int]) -> Tensor:
    if length is None:
        return torch.cat([past, new], 1)
    rows = with_rows_at(torch.unsqueeze(past, 1), torch.unsqueeze(new, 1), length)
    return torch.squeeze(rows, 1)


# The tokens of a query that it sees in their order, and how many; [rows, tokens] and [rows].
def seen_tokens(mask: Optional[Tensor], batch: int, past: int, sequence: int, device: Device) -> Tuple[Tensor, Tensor]:
    total = past + sequence
    token = torch.arange(total, device=device)
    seen = token <= torch.unsqueeze(torch.arange(sequence, device=device), 1) + past
    seen = torch.expand(torch.unsqueeze(seen, 0), [batch, -1, -1])
    if mask is not None:
        assert mask.size() == [batch, total], "mask must be of [batch, past and new tokens]"
        seen = torch.logical_and(seen, torch.unsqueeze(mask != 0, 1))
    seen = torch.flatten(seen, 0, 1)
    rank = torch.where(seen, torch.cumsum(seen.to(torch.int64), 1) - 1, total)
    tokens = torch.zeros([seen.size(0), total + 1], dtype=torch.int64, device=device)
    tokens = torch.scatter(tokens, 1, rank, torch.expand(token, seen.size()))
    return torch.slice(tokens, 1, 0, total), torch.sum(seen, 1)


# For each query the sums over its heads of what is positive of their products with keys of [batch, rows or 1, keys,
# size], [batch, queries, keys].
def index_scores(q: Tensor, keys: Tensor, head_weights: Optional[Tensor], scale: float) -> Tensor:
    products = torch.relu(torch.matmul(q, torch.transpose(keys, 2, 3)))
    if head_weights is not None:
        products = products * torch.unsqueeze(head_weights.to(torch.float32), 3)
    return torch.sum(products, 2) * scale


# Query and key, or what holds both in a row.
def query_and_key(query: Tensor, key: Optional[Tensor], size: int) -> Tuple[Tensor, Tensor]:
    if key is None:
        return torch.slice(query, 2, 0, query.size(2) - size), torch.slice(query, 2, query.size(2) - size)
    return query, key


def token_indexer(query: Tensor, key: Optional[Tensor], query_norm_weight: Tensor, key_norm_weight: Tensor,
                  cos_cache: Tensor, sin_cache: Tensor, mask: Optional[Tensor], past_key: Tensor,
                  past_sequence_length: Optional[int], compress_ratio: int, token_budget: int,
                  scale: Optional[float], epsilon: float) -> Tuple[Tensor, Tensor]:
    size, device = query_norm_weight.size(0), query.device
    new_query, new_key = query_and_key(query, key, size)
    batch, sequence = new_key.size(0), new_key.size(1)
    past = past_key.size(1) if past_sequence_length is None else past_sequence_length
    present = with_new_keys(past_key, new_key, past_sequence_length)
    tokens, seen = seen_tokens(mask, batch, past, sequence, device)
    blocks = (past + sequence) // compress_ratio
    grouped = torch.slice(tokens, 1, 0, blocks * compress_ratio)
    row = torch.arange(tokens.size(0), device=device)
    keys = present[torch.unsqueeze(torch.div(row, max(sequence, 1), rounding_mode="floor"), 1), grouped]
    keys = torch.unflatten(torch.unflatten(keys, 1, [blocks, compress_ratio]), 0, [batch, sequence])
    first = torch.reshape(torch.slice(grouped, 1, 0, None, compress_ratio), [batch, sequence * blocks])
    keys = index_keys(torch.flatten(keys, 1, 2), key_norm_weight, epsilon, cos_cache, sin_cache, first)
    position = torch.expand(torch.arange(sequence, device=device) + past, [batch, sequence])
    q = index_queries(new_query, query_norm_weight, epsilon, cos_cache, sin_cache, position, False)
    factor = 1 / torch.sqrt(size) if scale is None else scale
    scores = index_scores(q, torch.unflatten(keys, 1, [sequence, blocks]), None, factor)
    selected, _ = selected_tokens(torch.flatten(scores, 0, 1), tokens, seen, compress_ratio, token_budget)
    return torch.unflatten(selected, 0, [batch, sequence]), present


def window_indexer(query: Tensor, key: Tensor, query_norm_weight: Tensor, key_norm_weight: Tensor, cos_cache: Tensor,
                   sin_cache: Tensor, past_key: Tensor, gate: Tensor, position_bias: Tensor, head_weights: Tensor,
                   position_ids: Tensor, past_sequence_length: Optional[int], past_proj_buffer: Tensor,
                   compress_ratio: int, index_topk: int, scale: Optional[float], head_weight_scale: Optional[float],
                   epsilon: float) -> Tuple[Tensor, Tensor, Tensor]:
    kv = torch.cat([torch.select(past_proj_buffer, 0, 0), key], 1)
    gates = torch.cat([torch.select(past_proj_buffer, 0, 1), gate], 1)
    length = past_proj_buffer.size(2)
    assert length < 2 * compress_ratio, "past_proj_buffer must have less than two windows"
    before = compress_ratio if length >= compress_ratio else 0
    done = past_key.size(1) if past_sequence_length is None else past_sequence_length
    new = compressed_windows(kv, gates, before, position_bias, compress_ratio, key_norm_weight, epsilon, cos_cache,
                             sin_cache, done)
    present = with_new_keys(past_key, new.to(past_key.dtype), past_sequence_length)
    rest = kept_for_windows(kv.size(1), before, new.size(1), compress_ratio)
    buffer = torch.stack([torch.slice(kv, 1, kv.size(1) - rest), torch.slice(gates, 1, gates.size(1) - rest)])
    q = index_queries(query, query_norm_weight, epsilon, cos_cache, sin_cache, position_ids, True)
    factor = 1 / torch.sqrt(q.size(3)) if scale is None else scale
    factor = factor * (1 / torch.sqrt(q.size(2)) if head_weight_scale is None else head_weight_scale)
    keys = torch.unsqueeze(torch.slice(present, 1, 0, done + new.size(1)).to(torch.float32), 1)
    scores = torch.flatten(index_scores(q, keys, head_weights, factor), 0, 1)
    ends = torch.flatten(whole_windows(position_ids, compress_ratio))
    selected, _ = selected_windows(scores, ends, index_topk)
    return torch.unflatten(selected, 0, [query.size(0), query.size(1)]), present, buffer


# Of the tokens of sequences side by side: where each one's begin, how many it has behind it, and what is in its states.
def states_of_sequences(cumulative_sequence_lengths: List[int], past_sequence_lengths: List[int],
                        past_state_lengths: List[int], tokens: int, capacity: int,
                        room: int) -> List[Tuple[int, int, int, int, int]]:
    counts = counts_of_new(cumulative_sequence_lengths, past_sequence_lengths, tokens)
    assert len(past_state_lengths) == 2 * len(counts), "past_state_lengths must be of [batch, 2]"
    states: List[Tuple[int, int, int, int, int]] = []
    for i in range(len(counts)):
        entries, pending = past_state_lengths[2 * i], past_state_lengths[2 * i + 1]
        assert 0 <= entries and entries <= capacity, "past_state_lengths counts more entries than there are"
        assert 0 <= pending and pending < room, "past_state_lengths counts more tokens than the buffer takes"
        states.append((cumulative_sequence_lengths[i], counts[i], past_sequence_lengths[i], entries, pending))
    return states


def of_sequence(table: Tensor, i: int) -> Tensor:
    return table if table.dim() == 2 else torch.slice(table, 0, i, i + 1)


# Rows that replace those of a state from `start` on.
def with_state(state: Tensor, rows: Tensor, start: int) -> Tensor:
    assert state.dim() == 2 and state.size(1) == rows.size(1), "a state of shape {} does not take rows of {}".format(
        state.size(), rows.size())
    assert start + rows.size(0) <= state.size(0), "a state is smaller than its lengths tell"
    return torch.slice_scatter(state, rows.to(state.dtype), 0, start, start + rows.size(0))


def stacked(rows: List[Tensor], otherwise: Tensor) -> Tensor:
    return otherwise if len(rows) == 0 else torch.stack(rows)


# A sequence whose new entries do not fit into its state selects nothing, and leaves all states as they are.
def packed_token_indexer(
    query: Tensor, key: Optional[Tensor], query_norm_weight: Tensor, key_norm_weight: Tensor, cos_cache: Tensor,
    sin_cache: Tensor, cumulative_sequence_lengths: List[int], past_sequence_lengths: List[int],
    past_key_state: Tensor, past_kv_buffer: Tensor, past_state_lengths: List[int],
    state_update_capture_count: Optional[List[int]], state_update_active: Optional[int], compress_ratio: int,
    token_budget: int, state_capacity: int, state_update_capacity: int, scale: Optional[float], epsilon: float
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    size, ratio, device = query_norm_weight.size(0), compress_ratio, query.device
    new_query, new_key = query_and_key(torch.unsqueeze(query, 0), unsqueezed(key), size)
    assert past_key_state.size(1) == state_capacity, "past_key_state must have state_capacity entries"
    factor = 1 / torch.sqrt(size) if scale is None else scale
    selected = [torch.zeros([0, token_budget + ratio - 1], dtype=torch.int32, device=device)]
    counts = [torch.zeros([0], dtype=torch.int32, device=device)]
    key_states: List[Tensor] = []
    buffers: List[Tensor] = []
    updates: List[Tensor] = []
    lengths: List[int] = []
    states = states_of_sequences(cumulative_sequence_lengths, past_sequence_lengths, past_state_lengths,
                                 new_key.size(1), state_capacity, ratio)
    for i, (start, count, past, entries, pending) in enumerate(states):
        assert entries == past // ratio and pending == past % ratio, "past_state_lengths do not fit the past's tokens"
        key_state, buffer = torch.select(past_key_state, 0, i), torch.select(past_kv_buffer, 0, i)
        update = torch.zeros([state_update_capacity, size], dtype=query.dtype, device=device)
        rows = torch.cat([torch.slice(buffer, 0, 0, pending), torch.slice(new_key[0], 0, start, start + count)])
        blocks = rows.size(0) // ratio
        if entries + blocks > state_capacity:
            selected.append(torch.full([count, token_budget + ratio - 1], -1, dtype=torch.int32, device=device))
            counts.append(torch.zeros([count], dtype=torch.int32, device=device))
            lengths += [entries, pending]
        else:
            cos, sin = of_sequence(cos_cache, i), of_sequence(sin_cache, i)
            whole = torch.unflatten(torch.slice(rows, 0, 0, blocks * ratio), 0, [blocks, ratio])
            first = torch.unsqueeze((torch.arange(blocks, device=device) + entries) * ratio, 0)
            new = index_keys(torch.unsqueeze(whole, 0), key_norm_weight, epsilon, cos, sin, first)[0].to(query.dtype)
            key_state = with_state(key_state, new, entries)
            buffer = with_state(buffer, torch.slice(rows, 0, blocks * ratio), 0)
            lengths += [entries + blocks, rows.size(0) - blocks * ratio]

            position = torch.unsqueeze(torch.arange(count, device=device) + past, 0)
            q = index_queries(torch.slice(new_query, 1, start, start + count), query_norm_weight, epsilon, cos, sin,
                              position, False)
            keys = torch.slice(key_state, 0, 0, entries + blocks).to(torch.float32)
            scores = index_scores(q, torch.unsqueeze(torch.unsqueeze(keys, 0), 0), None, factor)[0]
            tokens = torch.expand(torch.arange(past + count, device=device), [count, past + count])
            chosen, number = selected_tokens(scores, tokens, position[0] + 1, ratio, token_budget)
            selected.append(chosen)
            counts.append(number)
            # What each of the first tokens has done: a block that it made whole, or itself in the buffer.
            if state_update_capture_count is not None and (state_update_active is None or state_update_active != 0):
                captured = max(min(min(state_update_capture_count[i], count), state_update_capacity), 0)
                token = torch.arange(captured, device=device) + pending
                done = torch.unsqueeze(torch.remainder(token + 1, ratio) == 0, 1)
                made = torch.cat([new, torch.zeros([1, size], dtype=new.dtype, device=device)])
                block = torch.clamp_max(torch.div(token, ratio, rounding_mode="floor"), blocks)
                update = with_state(update, torch.where(done, made[block], rows[token]), 0)
        key_states.append(key_state)
        buffers.append(buffer)
        updates.append(update)
    present_state_lengths = torch.reshape(torch.tensor(lengths, dtype=torch.int32, device=device), [-1, 2])
    nothing = torch.zeros([0, state_update_capacity, size], dtype=query.dtype, device=device)
    buffer = stacked(buffers, past_kv_buffer)
    return (torch.cat(selected), torch.cat(counts), stacked(key_states, past_key_state), buffer, buffer,
            present_state_lengths, stacked(updates, nothing))


def packed_window_indexer(
    query: Tensor, key: Tensor, query_norm_weight: Tensor, key_norm_weight: Tensor, cos_cache: Tensor,
    sin_cache: Tensor, cumulative_sequence_lengths: List[int], past_sequence_lengths: List[int], gate: Tensor,
    position_bias: Tensor, head_weights: Tensor, position_ids: Tensor, past_key_state: Tensor,
    past_kv_buffer: Tensor, past_gate_buffer: Tensor, past_state_lengths: List[int], compress_ratio: int,
    index_topk: int, state_capacity: int, scale: Optional[float], head_weight_scale: Optional[float], epsilon: float
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    size, ratio, device = query_norm_weight.size(0), compress_ratio, query.device
    assert past_key_state.size(1) == state_capacity, "past_key_state must have state_capacity entries"
    factor = 1 / torch.sqrt(size) if scale is None else scale
    factor = factor * (1 / torch.sqrt(query.size(1) // size) if head_weight_scale is None else head_weight_scale)
    selected = [torch.zeros([0, index_topk], dtype=torch.int32, device=device)]
    counts = [torch.zeros([0], dtype=torch.int32, device=device)]
    key_states: List[Tensor] = []
    kv_buffers: List[Tensor] = []
    gate_buffers: List[Tensor] = []
    lengths: List[int] = []
    states = states_of_sequences(cumulative_sequence_lengths, past_sequence_lengths, past_state_lengths,
                                 query.size(0), state_capacity, 2 * ratio)
    for i, (start, count, past, entries, pending) in enumerate(states):
        key_state, kv_buffer = torch.select(past_key_state, 0, i), torch.select(past_kv_buffer, 0, i)
        gate_buffer = torch.select(past_gate_buffer, 0, i)
        kv = torch.cat([torch.slice(kv_buffer, 0, 0, pending), torch.slice(key, 0, start, start + count)])
        gates = torch.cat([torch.slice(gate_buffer, 0, 0, pending), torch.slice(gate, 0, start, start + count)])
        before = ratio if pending >= ratio else 0
        windows = (kv.size(0) - before) // ratio
        if entries + windows > state_capacity:
            selected.append(torch.full([count, index_topk], -1, dtype=torch.int32, device=device))
            counts.append(torch.zeros([count], dtype=torch.int32, device=device))
            lengths += [entries, pending]
        else:
            cos, sin = of_sequence(cos_cache, i), of_sequence(sin_cache, i)
            new = compressed_windows(torch.unsqueeze(kv, 0), torch.unsqueeze(gates, 0), before, position_bias, ratio,
                                     key_norm_weight, epsilon, cos, sin, entries)[0]
            key_state = with_state(key_state, new, entries)
            rest = kept_for_windows(kv.size(0), before, windows, ratio)
            kv_buffer = with_state(kv_buffer, torch.slice(kv, 0, kv.size(0) - rest), 0)
            gate_buffer = with_state(gate_buffer, torch.slice(gates, 0, kv.size(0) - rest), 0)
            lengths += [entries + windows, rest]

            position = torch.unsqueeze(torch.slice(position_ids, 0, start, start + count), 0)
            q = index_queries(torch.unsqueeze(torch.slice(query, 0, start, start + count), 0), query_norm_weight,
                              epsilon, cos, sin, position, True)
            keys = torch.slice(key_state, 0, 0, entries + windows).to(torch.float32)
            weights = torch.unsqueeze(torch.slice(head_weights, 0, start, start + count), 0)
            scores = index_scores(q, torch.unsqueeze(torch.unsqueeze(keys, 0), 0), weights, factor)[0]
            chosen, number = selected_windows(scores, whole_windows(position[0], ratio), index_topk)
            selected.append(chosen)
            counts.append(number)
        key_states.append(key_state)
        kv_buffers.append(kv_buffer)
        gate_buffers.append(gate_buffer)
    present_state_lengths = torch.reshape(torch.tensor(lengths, dtype=torch.int32, device=device), [-1, 2])
    key_state = stacked(key_states, past_key_state)
    return (torch.cat(selected), torch.cat(counts), key_state, stacked(kv_buffers, past_kv_buffer),
            stacked(gate_buffers, past_gate_buffer), present_state_lengths, key_state)
