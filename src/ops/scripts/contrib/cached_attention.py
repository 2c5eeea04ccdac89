# RotaryEmbedding, MRotaryEmbedding, GemmaRotaryEmbedding, GroupQueryAttention, and functions for attention with a past.


# Rotates x of [batch, heads, sequence, size] by the angles of its positions, which are [batch or 1, sequence];
# aten::embedding refuses those that the caches lack. As many elements of each row are rotated as the caches have angles
# for.
def rotated(x: Tensor, positions: Tensor, cos_cache: Tensor, sin_cache: Tensor, interleaved: bool) -> Tensor:
    assert cos_cache.dim() == 2 and cos_cache.size() == sin_cache.size(), "cos_cache and sin_cache differ in shape"
    size = 2 * cos_cache.size(1)
    assert size <= x.size(3), "the caches rotate {} elements of heads of {}".format(size, x.size(3))
    cos, sin = torch.embedding(cos_cache, positions), torch.embedding(sin_cache, positions)
    return rotary_embedding(x, cos, sin, None, None, size, interleaved)


# Gives positions that count on from a first one.
def counted_from(first: Tensor, length: int) -> Tensor:
    return torch.reshape(first, [-1, 1]) + torch.arange(length, device=first.device)


# Rotates by positions. onnxruntime's kernel ignores scale and is_packed_batching, too.
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


# Gives query, key and value as [batch, heads, sequence, size], from three inputs or from one that holds all of them.
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


# Gives a past, after checking that new rows fit it.
def fitting_past(past: Tensor, new: Tensor) -> Tensor:
    assert past.dim() == 4 and past.size()[:2] == new.size()[:2] and past.size(3) == new.size(3), (
        "a past of shape {} and new rows of shape {} do not go together".format(past.size(), new.size()))
    return past


# Joins the first rows of a past, as many as `kept` says of each sequence, new rows, and zeros up to `capacity`.
def with_kept_past(past: Optional[Tensor], new: Tensor, kept: List[int], capacity: int) -> Tensor:
    if past is None:
        return padded_rows(new, capacity)
    old = fitting_past(past, new)
    if len(kept) > 0 and are_all(kept, kept[0]):
        return padded_rows(torch.cat([torch.slice(old, 2, 0, kept[0]), new], 2), capacity)
    return with_rows_from(past, new, torch.tensor(kept, dtype=torch.int64, device=new.device), capacity)


# Does the same where the counts in `kept` are a tensor.
def with_rows_from(past: Tensor, new: Tensor, starts: Tensor, capacity: int) -> Tensor:
    old = padded_rows(torch.slice(fitting_past(past, new), 2, 0, capacity), capacity)
    row = torch.reshape(torch.arange(capacity, device=new.device), [1, 1, -1, 1])
    old = from_bytes(torch.where(row < torch.reshape(starts, [-1, 1, 1, 1]), as_bytes(old), 0), past.dtype)
    return tensor_scatter(old, new, starts, 2, "linear")


def padded_rows(x: Tensor, count: int) -> Tensor:
    if x.size(2) == count:
        return x
    return from_bytes(torch.constant_pad_nd(as_bytes(x), [0, 0, 0, count - x.size(2)], 0), x.dtype)


# --- GroupQueryAttention ---


# Encodes numbers as 4-bit codes of 0 to 15: plus 8, as two's complements, or as floats.
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


# Quantizes rows for a cache of 8 or 4 bits; without a scale it leaves them as they are. Two 4-bit codes make a byte,
# the first of them in its low half.
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


# Gives one scale for all, or one for each element of each head.
def scale_of_rows(scale: Optional[Tensor], quant_type: str, heads: int) -> Optional[Tensor]:
    if quant_type == "NONE":
        return None
    assert quant_type == "PER_TENSOR" or quant_type == "PER_CHANNEL", "there is no such quantization as " + quant_type
    assert scale is not None, "a quantized cache needs k_scale and v_scale"
    return one_for_all(scale) if quant_type == "PER_TENSOR" else torch.reshape(scale, [1, heads, 1, -1])


# Tells which keys each query may attend to, [batch, 1, queries, keys]; None means all of them. A query sees the keys up
# to its own position, or all of its sequence; a window is the last of those up to its position. The queries of padding,
# which come behind a sequence, attend as its last one does.
def keys_within_reach(lengths: List[int], offsets: List[int], queries: int, keys: int, causal: bool, window: int,
                      device: Device) -> Optional[Tensor]:
    sees_all = not causal or (queries == 1 and are_all(offsets, keys - 1))
    if are_all(lengths, keys) and sees_all and (window < 0 or window >= keys):
        return None
    return keys_up_to(torch.tensor(lengths, dtype=torch.int64, device=device),
                      torch.tensor(offsets, dtype=torch.int64, device=device), queries, keys, causal, window)


# Does the same where the lengths and the positions of the first queries are tensors.
def keys_up_to(lengths: Tensor, offsets: Tensor, queries: int, keys: int, causal: bool, window: int) -> Tensor:
    ends = torch.reshape(lengths, [-1, 1, 1, 1])
    places = torch.unsqueeze(counted_from(offsets + 1, queries), 1)
    own_ends = torch.minimum(torch.unsqueeze(places, 3), ends)
    key = torch.arange(keys, device=lengths.device)
    allowed = key < (own_ends if causal else ends)
    return allowed if window < 0 else torch.logical_and(allowed, key >= own_ends - window)


# Computes attention step by step, where something asks for that: a cap, a sink, which takes a share of each row of
# weights, or the scores (0 where they are hidden) or weights as output.
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


# Computes attention, by ATen's scaled_dot_product_attention where `fused`, which gives no scores or weights.
def attention_of_groups(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], allowed: Optional[Tensor],
                        is_causal: bool, scale: Optional[float], softcap: float, sink: Optional[Tensor],
                        qk_output: int, fused: bool) -> Tuple[Tensor, Tensor]:
    v = fitting_values(q, k, v)
    if fused:
        y = torch.scaled_dot_product_attention(q, k, v, combined_mask(bias, allowed), 0.0, is_causal, scale=scale,
                                               enable_gqa=q.size(1) != k.size(1))
        return y, y
    return attention_with_sink(q, k, v, bias, allowed, scale, softcap, sink, qk_output)


# Counts the rows that a window's cache holds of a sequence: where it runs full, as many are dropped at once as it has
# beyond the window.
def rows_in_window(length: int, capacity: int, window: int) -> int:
    if length <= capacity:
        return length
    gap = capacity - window + 1
    return length - gap * ((length - capacity + gap - 1) // gap)


# Gives `count` items of an axis from an index on that differs between the batches; zeros where there are none.
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


# Gives the positions that queries and keys are rotated by: those in their sequences, unless they are given. Of a
# prompt's given positions onnxruntime's kernel uses only the first one.
def positions_of_queries(position_ids: Optional[Tensor], starts: List[int], queries: int, is_prompt: bool,
                         device: Device) -> Tensor:
    if position_ids is None:
        return counted_from(torch.tensor(starts, dtype=torch.int64, device=device), queries)
    if is_prompt:
        return counted_from(torch.slice(torch.reshape(position_ids, [-1]), 0, 0, 1), queries)
    return position_ids


# Computes attention of heads of queries, keys and values; where `fused`, by ATen's scaled_dot_product_attention.
def group_query_attention(
    q: Tensor, k: Tensor, v: Tensor, past_key: Optional[Tensor], past_value: Optional[Tensor], seqlens_k: List[int],
    total_sequence_length: int, cos_cache: Optional[Tensor], sin_cache: Optional[Tensor],
    position_ids: Optional[Tensor], attention_bias: Optional[Tensor], head_sink: Optional[Tensor],
    k_scale: Optional[Tensor], v_scale: Optional[Tensor], causal: bool, do_rotary: bool, rotary_interleaved: bool,
    local_window_size: int, sliding_window_cache: bool, scale: Optional[float], softcap: float, smooth_softmax: bool,
    qk_output: int, k_quant_type: str, v_quant_type: str, coding: str, cache_dtype: int, fused: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    num_heads, kv_num_heads = q.size(1), k.size(1)
    assert k.size(2) == q.size(2) or k.size(2) == 0, "query and key must have as many rows, or key none"
    assert len(seqlens_k) == q.size(0), "seqlens_k must have a number for each sequence of the batch"

    # A prompt starts anew, whatever the past holds. A step without new keys reads the past alone.
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


# Does the same for floats in a cache that is not quantized and drops nothing, without a bias, and without the scores.
@kept
def plain_group_query_attention(
    q: Tensor, k: Tensor, v: Tensor, past_key: Optional[Tensor], past_value: Optional[Tensor], seqlens_k: Tensor,
    total_sequence_length: Tensor, cos_cache: Optional[Tensor], sin_cache: Optional[Tensor],
    position_ids: Optional[Tensor], head_sink: Optional[Tensor], causal: bool, do_rotary: bool,
    rotary_interleaved: bool, local_window_size: int, scale: Optional[float], softcap: float, smooth_softmax: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    total = read_ints(total_sequence_length)
    assert len(total) == 1, "total_sequence_length must be one number"
    fused = softcap == 0.0 and not smooth_softmax and head_sink is None
    y, present_key, present_value, _ = group_query_attention(
        q, k, v, past_key, past_value, read_ints(seqlens_k), total[0], cos_cache, sin_cache, position_ids, None,
        head_sink, None, None, causal, do_rotary, rotary_interleaved, local_window_size, False, scale, softcap,
        smooth_softmax, 0, "NONE", "NONE", "NONE", q.dtype, fused)
    if past_key is None:  # the present is the input itself then, so it is copied
        return y, torch.clone(present_key), torch.clone(present_value)
    return y, present_key, present_value


# Does the same on a device, without waiting for the elements of seqlens_k: all rows of the cache are read, under a
# mask. The operators that take an element as an index refuse one that does not fit.
def masked_group_query_attention(
    q: Tensor, k: Tensor, v: Tensor, past_key: Optional[Tensor], past_value: Optional[Tensor], seqlens_k: Tensor,
    total_sequence_length: List[int], cos_cache: Optional[Tensor], sin_cache: Optional[Tensor],
    position_ids: Optional[Tensor], head_sink: Optional[Tensor], causal: bool, do_rotary: bool,
    rotary_interleaved: bool, local_window_size: int, scale: Optional[float], softcap: float, smooth_softmax: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    assert len(total_sequence_length) == 1, "total_sequence_length must be one number"
    total = total_sequence_length[0]
    queries = q.size(2)
    assert k.size(2) == queries or k.size(2) == 0, "query and key must have as many rows, or key none"
    assert seqlens_k.numel() == q.size(0), "seqlens_k must have a number for each sequence of the batch"
    is_prompt = queries == total
    capacity = total if past_key is None else max(total, past_key.size(2))
    assert k.size(2) <= capacity, "there are more keys than past_key and total_sequence_length have"
    lengths = torch.reshape(seqlens_k, [-1]).to(torch.int64) + 1
    starts = torch.zeros_like(lengths) if is_prompt else lengths - queries

    if do_rotary:
        assert cos_cache is not None and sin_cache is not None, "do_rotary needs cos_cache and sin_cache"
        positions = counted_from(starts, queries)
        if position_ids is not None:
            positions = position_ids
            if is_prompt:
                positions = counted_from(torch.slice(torch.reshape(position_ids, [-1]), 0, 0, 1), queries)
        q = rotated(q, positions, cos_cache, sin_cache, rotary_interleaved)
        if k.size(2) > 0:
            k = rotated(k, positions, cos_cache, sin_cache, rotary_interleaved)

    offsets = starts
    if past_key is None or past_value is None:
        offsets = torch.zeros_like(starts)
        key, value = padded_rows(k, capacity), padded_rows(v, capacity)
    else:
        kept = starts if k.size(2) > 0 else lengths
        key, value = with_rows_from(past_key, k, kept, capacity), with_rows_from(past_value, v, kept, capacity)
    allowed = keys_up_to(lengths, offsets, queries, capacity, causal, local_window_size)
    sink = torch.zeros([q.size(1)], device=q.device) if head_sink is None and smooth_softmax else head_sink
    y, _ = attention_of_groups(q, key, value, None, allowed, False, scale, softcap, sink, 0,
                               softcap == 0.0 and sink is None)
    if past_key is None:  # the present is the input itself then, so it is copied
        return merge_heads(y), torch.clone(key), torch.clone(value)
    return merge_heads(y), key, value


# --- MRotaryEmbedding, GemmaRotaryEmbedding ---


# Tells which of the three streams of positions each angle belongs to: one stream after the other, or every third angle
# to the second stream and every third to the third, as far as their sections go.
def streams_of_angles(mrope_section: List[int], in_turn: bool) -> List[int]:
    assert len(mrope_section) == 3 and min(mrope_section) >= 0, "mrope_section must be three counts"
    if in_turn:
        streams: List[int] = []
        for i in range(mrope_section[0] + mrope_section[1] + mrope_section[2]):
            streams.append(i % 3 if i < 3 * mrope_section[i % 3] else 0)
        return streams
    return [0] * mrope_section[0] + [1] * mrope_section[1] + [2] * mrope_section[2]


# Rotates by positions. The kernel ignores is_packed_batching, but has a scale for sines and cosines.
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
