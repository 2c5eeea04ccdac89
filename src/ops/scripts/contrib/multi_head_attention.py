# MultiHeadAttention, DecoderMaskedMultiHeadAttention.


# Splits query, key and value that are in one tensor: of [batch, sequence, heads, 3, size], of [batch, sequence, 3 *
# hidden], or, for key and value alone, of [batch, sequence, heads, 2, size].
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


# Adds the bias and splits heads, [batch, heads, sequence, size]; keys and values of another attention are so already.
# `bias` is for query, key and value in turn, and `start` is where the part for x begins.
def biased_heads(x: Tensor, bias: Optional[Tensor], start: int, num_heads: int) -> Tensor:
    if x.dim() == 4:
        return x
    return split_heads(x if bias is None else x + torch.slice(bias, 0, start, start + x.size(2)), num_heads)


# Makes the mask that is added to scores where the padding of keys hides them, [batch, 1, queries or 1, keys]. The given
# mask has an element for each key or for each query's key, or the lengths of the sequences, behind which others may
# follow.
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


# Tells which keys each query may attend to. onnxruntime's kernel lets the last query attend to all keys, also where
# there are more of them than queries.
def keys_before_queries(queries: int, keys: int, past: int, device: Device) -> Tensor:
    query = torch.reshape(torch.arange(queries, device=device), [-1, 1])
    return torch.logical_or(torch.arange(keys, device=device) <= query + past, query == queries - 1)


# Gathers the rows of a past of several beams for each sequence: cache_indirection, [batch, beams, length], tells the
# beam of each row. From `past` on, rows are a beam's own.
def rows_of_beams(x: Tensor, cache_indirection: Tensor, past: int) -> Tensor:
    beams = max(cache_indirection.size(1), 1)
    assert x.size(0) == cache_indirection.size(0) * beams, "cache_indirection does not fit the batch"
    batch = torch.reshape(torch.arange(x.size(0), device=x.device), [-1, 1])
    place = torch.arange(x.size(2), device=x.device)
    beam = torch.slice(torch.flatten(cache_indirection, 0, 1), 1, 0, x.size(2))
    assert beam.size(1) == x.size(2), "cache_indirection is shorter than the past"
    source = torch.where(place < past, batch // beams * beams + beam, batch)
    return torch.movedim(torch.movedim(x, 2, 1)[source, place], 1, 2)


# Writes new rows into a past, from `start` on.
def with_rows_at(past: Tensor, new: Tensor, start: int) -> Tensor:
    assert start >= 0 and start + new.size(2) <= past.size(2), (
        "{} rows behind {} do not fit into a past of {}".format(new.size(2), start, past.size(2)))
    return torch.slice_scatter(fitting_past(past, new), new, 2, start, start + new.size(2))


# Computes attention; where `fused`, by ATen's scaled_dot_product_attention. Where past and present share a buffer,
# `past_sequence_length` is the number of rows in the past, and the new ones follow them in place.
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
