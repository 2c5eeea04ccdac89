# Attention, QAttention, RelativePositionBias, GatedRelativePositionBias, RemovePadding, RestorePadding,
# PackedAttention, PackedMultiHeadAttention, LongformerAttention, QOrderedAttention, QOrderedLongformerAttention,
# DynamicSparseAttention.


# Tells which keys mask_index lets be attended to, [batch or 1, 1, queries or 1, keys]; None where it hides none. It
# holds
# - the end of each sequence, then maybe their starts, or offsets of sequences in a packed batch (rank 1),
# - whether a key is open, for all queries (rank 2) or for each (rank 3),
# - the same for a square of positions that holds the queries and keys (rank 4).
def open_keys(mask_index: Tensor, batch: int, queries: int, keys: int) -> Optional[Tensor]:
    sizes = mask_index.size()
    if mask_index.dim() == 1:
        assert sizes[0] in [batch, 2 * batch, 3 * batch + 2], (
            "mask_index has {} elements, not one or two a sequence".format(sizes[0]))
        key = torch.arange(keys, device=mask_index.device)
        is_open = key < torch.reshape(mask_index[:batch], [-1, 1, 1, 1])
        if sizes[0] == 2 * batch:
            is_open = both(is_open, key >= torch.reshape(mask_index[batch:], [-1, 1, 1, 1]))
        return is_open
    if mask_index.dim() == 2:
        if sizes[1] == 1 and sizes[0] in [1, batch] and sizes != [batch, keys]:
            return None
        assert sizes == [batch, keys], "mask_index has shape {}, not {}".format(sizes, [batch, keys])
        return torch.reshape(mask_index > 0, [batch, 1, 1, keys])
    if mask_index.dim() == 3:
        assert sizes == [batch, queries, keys], "mask_index has shape {}, not {}".format(sizes, [batch, queries, keys])
        return torch.unsqueeze(mask_index > 0, 1)
    assert mask_index.dim() == 4 and sizes[:2] == [batch, 1] and sizes[2] == sizes[3] and sizes[3] >= keys, (
        "mask_index of shape {} does not hold {} positions".format(sizes, keys))
    return mask_index[:, :, keys - queries:keys, :keys] > 0


# Makes the mask that is added to the scores, [batch or 1, heads or 1, queries or 1, keys]. A key after a query is
# hidden by the lowest float, and is attended to where all others are hidden as well.
def added_to_scores(is_open: Optional[Tensor], mask_filter_value: float, is_causal: bool,
                    attention_bias: Optional[Tensor], queries: int, keys: int, dtype: int) -> Optional[Tensor]:
    mask: Optional[Tensor] = None
    if is_open is not None:
        mask = torch.where(is_open, 0.0, mask_filter_value)
        if is_causal:
            query = torch.arange(keys - queries, keys, device=is_open.device)
            key = torch.arange(keys, device=is_open.device)
            mask = torch.where(key <= torch.unsqueeze(query, 1), mask, float("-inf"))
        mask = torch.nan_to_num(torch.to(mask, dtype))
    if attention_bias is None:
        return mask
    return attention_bias if mask is None else mask + attention_bias


# Computes the cosines and sines of positions from `past` on, [1, positions, dim / 2] each.
def rotary_tables(past: int, positions: int, dim: int, device: Device) -> Tuple[Tensor, Tensor]:
    assert dim > 0 and dim % 2 == 0, "a rotary embedding of {} dimensions does not consist of pairs".format(dim)
    frequency = torch.pow(10000.0, torch.arange(0, dim, 2, dtype=torch.float32, device=device) / -dim)
    position = torch.arange(past, past + positions, dtype=torch.float32, device=device)
    angle = torch.reshape(position, [1, -1, 1]) * frequency
    return torch.cos(angle), torch.sin(angle)


# Rotates Q or K, [batch, heads, sequence, size], by its positions.
def turned_by_position(x: Tensor, past: int, rotary_embedding_dim: int) -> Tensor:
    dim = x.size(3) if rotary_embedding_dim == 0 else rotary_embedding_dim
    assert dim <= x.size(3), "rotary_embedding_dim is {}, a head has {} elements".format(dim, x.size(3))
    cos, sin = rotary_tables(past, x.size(2), dim, x.device)
    return torch.to(rotary_embedding(x, cos, sin, None, None, dim, False), x.dtype)


# Computes attention of [batch, heads, sequence, size]; k and v may have fewer heads.
def attended_heads(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool,
                   scale: Optional[float]) -> Tensor:
    return torch.scaled_dot_product_attention(q, k, fitting_values(q, k, v), mask, 0.0, is_causal, scale=scale,
                                              enable_gqa=q.size(1) != k.size(1))


# Gives one of Q, K and V (0, 1, 2), which follow one another along the last dimension.
def of_projection(qkv: Tensor, i: int, qkv_hidden_sizes: Optional[List[int]]) -> Tensor:
    hidden_sizes = [qkv.size(-1) // 3] * 3 if qkv_hidden_sizes is None else qkv_hidden_sizes
    assert len(hidden_sizes) == 3, "qkv_hidden_sizes has {} elements, not 3".format(len(hidden_sizes))
    assert sum(hidden_sizes) == qkv.size(-1), "the hidden sizes {} do not make up {}".format(hidden_sizes, qkv.size(-1))
    return torch.narrow(qkv, -1, sum(hidden_sizes[:i]), hidden_sizes[i])


# Computes attention of the Q, K and V in `qkv`, [batch, sequence, hidden sizes], and the present state, where wanted.
def projected_attention(qkv: Tensor, mask_index: Optional[Tensor], past: Optional[Tensor],
                        attention_bias: Optional[Tensor], past_sequence_length: Optional[int], num_heads: int,
                        qkv_hidden_sizes: Optional[List[int]], unidirectional: bool, do_rotary: bool,
                        rotary_embedding_dim: int, past_present_share_buffer: bool, mask_filter_value: float,
                        scale: Optional[float], num_outputs: int) -> Tuple[Tensor, Tensor]:
    assert qkv.dim() == 3, "the input has {} dimensions, not 3".format(qkv.dim())
    batch, queries = qkv.size(0), qkv.size(1)
    q = split_heads(of_projection(qkv, 0, qkv_hidden_sizes), num_heads)
    k = split_heads(of_projection(qkv, 1, qkv_hidden_sizes), num_heads)
    v = split_heads(of_projection(qkv, 2, qkv_hidden_sizes), num_heads)

    past_key: Optional[Tensor] = None
    past_value: Optional[Tensor] = None
    past_length = 0
    if past is not None:
        assert past.dim() == 5 and past.size(0) == 2, "past has shape {}, not [2, ...]".format(past.size())
        past_length = past.size(3)
        if past_present_share_buffer:
            assert past_sequence_length is not None, "past_present_share_buffer needs past_sequence_length"
            past_length = past_sequence_length
            assert past_length >= 0 and past_length + queries <= past.size(3), (
                "past has no room for {} positions after the first {}".format(queries, past_length))
        past_key, past_value = past[0, :, :, :past_length], past[1, :, :, :past_length]
    if do_rotary:
        q = turned_by_position(q, past_length, rotary_embedding_dim)
        k = turned_by_position(k, past_length, rotary_embedding_dim)

    keys = past_length + queries
    is_open: Optional[Tensor] = None
    if mask_index is not None:
        is_open = open_keys(mask_index, batch, queries, keys)
    mask = added_to_scores(is_open, mask_filter_value, unidirectional, attention_bias, queries, keys, qkv.dtype)
    is_plain = mask is None and past is None
    if unidirectional and is_open is None and not is_plain:
        mask = combined_mask(mask, allowed_by_position(q, keys, past_length, None, True, None, None))
    present_key, present_value = with_past(k, past_key), with_past(v, past_value)
    Y = attended_heads(q, present_key, present_value, mask, unidirectional and is_plain, scale)
    present = Y
    if num_outputs > 1:
        assert k.size(3) == v.size(3), "present takes heads of one size, not {} and {}".format(k.size(3), v.size(3))
        if past is not None and past_present_share_buffer:
            present = torch.slice_scatter(past, torch.stack([k, v]), 3, past_length, keys)
        else:
            present = torch.stack([present_key, present_value])
    return merge_heads(Y), present


def projected(x: Tensor, weights: Tensor, bias: Optional[Tensor]) -> Tensor:
    product = torch.matmul(x, weights)
    return product if bias is None else product + bias


# --- Biases by relative position ---


# Gives the bucket that each distance of a key from a query falls into, [queries, keys]: small distances have one each,
# larger ones share them, in logarithmic steps up to max_distance.
def distance_buckets(queries: int, keys: int, buckets: int, max_distance: int, is_bidirectional: bool,
                     device: Device) -> Tensor:
    key = torch.arange(keys, device=device)
    distance = key - torch.unsqueeze(torch.arange(queries, device=device), 1)
    of_side = buckets // 2 if is_bidirectional else buckets
    exact = of_side // 2
    assert 0 < exact and exact < max_distance, "{} buckets do not suit a max_distance of {}".format(
        buckets, max_distance)
    first = (distance > 0).to(torch.int64) * of_side if is_bidirectional else torch.zeros_like(distance)
    distance = torch.abs(distance)
    steps = torch.log(distance.to(torch.float32) / exact) / torch.log(max_distance / exact) * (of_side - exact)
    larger = exact + torch.clamp(steps, 0, of_side - exact - 1).to(torch.int64)
    return first + torch.where(distance < exact, distance, larger)


# Looks the biases up in a table that has the buckets of one head after those of another, whatever its shape says.
def relative_position_bias(bias_table: Tensor, query_length: int, key_length: int, max_distance: int,
                           is_bidirectional: bool) -> Tensor:
    assert bias_table.dim() == 2, "bias_table has {} dimensions, not 2".format(bias_table.dim())
    buckets, heads = bias_table.size(0), bias_table.size(1)
    bucket = distance_buckets(query_length, key_length, buckets, max_distance, is_bidirectional, bias_table.device)
    bias = torch.index_select(torch.reshape(bias_table, [heads, buckets]), 1, torch.flatten(bucket))
    return torch.reshape(bias, [1, heads, query_length, key_length])


# Multiplies by two gates for each query: a gate is a sum over half of the query's product with `weight`.
def gated_relative_position_bias(query_layer: Tensor, query_bias: Tensor, rel_pos: Tensor, weight: Tensor,
                                 bias: Tensor, eco_a: Tensor, token_offset: Optional[Tensor],
                                 num_heads: int) -> Tensor:
    query = query_layer if token_offset is None else restored_padding(query_layer, token_offset)
    q = split_heads(query + query_bias, num_heads)
    halves = torch.unflatten(projected(q, weight, bias), 3, [2, -1])
    gate_u, gate_r = torch.chunk(torch.sigmoid(torch.sum(halves, -1)), 2, -1)
    return (gate_u * (gate_r * eco_a - 1) + 2) * rel_pos


# --- Packed sequences: only tokens that are no padding, one after another ---


def removed_padding(input: Tensor, sequence_token_count: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, length = input.size(0), input.size(1)
    assert sequence_token_count.size() == [batch], "sequence_token_count has shape {}, not {}".format(
        sequence_token_count.size(), [batch])
    assert bool(torch.all((sequence_token_count >= 0) & (sequence_token_count <= length))), (
        "a count in sequence_token_count is not from 0 to {}".format(length))
    count = torch.unsqueeze(sequence_token_count, 1)
    is_token = torch.flatten(torch.arange(length, device=input.device) < count)
    tokens = torch.squeeze(torch.nonzero(is_token), 1)
    padding = torch.squeeze(torch.nonzero(torch.logical_not(is_token)), 1)
    token_offset = torch.reshape(torch.cat([tokens, padding]), [batch, length])
    ends = torch.pad(torch.cumsum(sequence_token_count, 0), [1, 0], "constant", 0.0)
    longest = torch.max(torch.pad(sequence_token_count, [1, 0], "constant", 0.0), 0, True)[0]
    return (torch.index_select(torch.flatten(input, 0, 1), 0, tokens), token_offset.to(torch.int32),
            ends.to(torch.int32), longest)


# Makes [batch, sequence, …] of [tokens, …], 0 where there is padding.
def restored_padding(input: Tensor, token_offset: Tensor) -> Tensor:
    assert token_offset.dim() == 2, "token_offset has {} dimensions, not 2".format(token_offset.dim())
    sizes = input.size()[1:]
    places = torch.flatten(token_offset)[:input.size(0)]
    rows = torch.zeros([token_offset.numel()] + sizes, dtype=input.dtype, device=input.device)
    return torch.unflatten(torch.index_copy(rows, 0, places.to(torch.int64), input), 0, token_offset.size())


# Computes attention among the tokens of each sequence; Q, K and V are [tokens, hidden size].
def attention_of_packed(q: Tensor, k: Tensor, v: Tensor, token_offset: Tensor, cumulative_sequence_length: Tensor,
                        attention_bias: Optional[Tensor], num_heads: int, scale: Optional[float]) -> Tensor:
    ends = torch.reshape(cumulative_sequence_length, [-1, 1, 1, 1])
    assert ends.size(0) == token_offset.size(0) + 1, "cumulative_sequence_length has {} elements, not {}".format(
        ends.size(0), token_offset.size(0) + 1)
    is_open = torch.arange(token_offset.size(1), device=q.device) < ends[1:] - ends[:-1]
    Y = attended_heads(split_heads(restored_padding(q, token_offset), num_heads),
                       split_heads(restored_padding(k, token_offset), num_heads),
                       split_heads(restored_padding(v, token_offset), num_heads),
                       combined_mask(attention_bias, is_open), False, scale)
    return torch.index_select(torch.flatten(merge_heads(Y), 0, 1), 0, torch.flatten(token_offset)[:q.size(0)])


def packed_attention(input: Tensor, weights: Tensor, bias: Tensor, token_offset: Tensor,
                     cumulative_sequence_length: Tensor, attention_bias: Optional[Tensor], num_heads: int,
                     qkv_hidden_sizes: Optional[List[int]], scale: Optional[float]) -> Tensor:
    qkv = projected(input, weights, bias)
    return attention_of_packed(of_projection(qkv, 0, qkv_hidden_sizes), of_projection(qkv, 1, qkv_hidden_sizes),
                               of_projection(qkv, 2, qkv_hidden_sizes), token_offset, cumulative_sequence_length,
                               attention_bias, num_heads, scale)


# Computes attention. The kernels of this operator hide what is no key of a sequence altogether, and ignore
# mask_filter_value.
def packed_multi_head_attention(query: Tensor, key: Optional[Tensor], value: Optional[Tensor], bias: Optional[Tensor],
                                token_offset: Tensor, cumulative_sequence_length: Tensor,
                                attention_bias: Optional[Tensor], num_heads: int, scale: Optional[float]) -> Tensor:
    if key is not None and value is not None:
        q, k, v = query, key, value
    else:
        assert key is None and value is None, "key and value come together"
        assert query.dim() == 4 and query.size(2) == 3, (
            "query has shape {}, not [tokens, heads, 3, head size]".format(query.size()))
        q, k, v = torch.flatten(query[:, :, 0], 1), torch.flatten(query[:, :, 1], 1), torch.flatten(query[:, :, 2], 1)
    if bias is not None:
        b = torch.split_with_sizes(bias, [q.size(1), k.size(1), v.size(1)])
        q, k, v = q + b[0], k + b[1], v + b[2]
    return attention_of_packed(q, k, v, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale)


# --- Windows: LongformerAttention, QOrderedLongformerAttention ---


def attended_projection(qkv: Tensor, mask: Tensor, num_heads: int) -> Tensor:
    return attended_heads(split_heads(of_projection(qkv, 0, None), num_heads),
                          split_heads(of_projection(qkv, 1, None), num_heads),
                          split_heads(of_projection(qkv, 2, None), num_heads), mask, False, None)


# Lets a token attend to those at most `window` away and to the global ones, which attend to all, by projections of
# their own. `mask` is added to the scores of a key; a token whose mask is negative gives zeros.
def windowed_attention(qkv: Tensor, global_qkv: Tensor, mask: Tensor, global_flags: Tensor, num_heads: int,
                       window: int) -> Tensor:
    sizes = qkv.size()[:2]
    assert mask.size() == sizes and global_flags.size() == sizes, (
        "mask of shape {} and global of shape {}, not {}".format(mask.size(), global_flags.size(), sizes))
    position = torch.arange(sizes[1], device=qkv.device)
    is_near = torch.abs(position - torch.unsqueeze(position, 1)) <= window
    is_global = torch.unsqueeze(global_flags != 0, 1)
    is_open = torch.logical_or(is_near, torch.unsqueeze(is_global, 1))
    added = torch.to(torch.reshape(mask, [sizes[0], 1, 1, sizes[1]]), qkv.dtype)
    by_window = attended_projection(qkv, torch.where(is_open, added, float("-inf")), num_heads)
    by_all = attended_projection(global_qkv, added, num_heads)
    Y = merge_heads(torch.where(torch.unsqueeze(is_global, 3), by_all, by_window))
    return torch.masked_fill(Y, torch.unsqueeze(mask < 0, 2), 0)


def longformer_attention(input: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, global_weight: Tensor,
                         global_bias: Tensor, global_flags: Tensor, num_heads: int, window: int) -> Tensor:
    return windowed_attention(projected(input, weight, bias), projected(input, global_weight, global_bias), mask,
                              global_flags, num_heads, window)


# --- Quantized step by step: QOrderedAttention, QOrderedLongformerAttention ---


# Transposes a matrix whose elements lie column after column, whatever its shape says, to row-major order.
def of_columns(x: Tensor) -> Tensor:
    return torch.transpose(torch.reshape(x, [x.size(1), x.size(0)]), 0, 1)


def steps_of_8_bits(x: Tensor) -> Tensor:
    return torch.clamp(torch.round(x), -128, 127)


# Computes a projection in units of scale_gemm, which the bias is in as well.
def projected_steps(input: Tensor, weight: Tensor, bias: Tensor, scale_input: Tensor, scale_weight: Tensor,
                    scale_gemm: Tensor) -> Tensor:
    sums = torch.to(torch.matmul(torch.to(input, torch.float64), torch.to(weight, torch.float64)), torch.float32)
    return steps_of_8_bits(sums * (scale_input * scale_weight / scale_gemm) + bias)


# Computes windowed attention. The kernels of this operator take the biases in units of the products' scales, as they
# come from the tool that makes such models. It is in float64, so that the order of its sums does not decide how a
# result is rounded.
def quantized_longformer_attention(input: Tensor, scale_input: Tensor, weight: Tensor, scale_weight: Tensor,
                                   bias: Tensor, scale_qkv_gemm: Tensor, mask: Tensor, global_weight: Tensor,
                                   scale_global_weight: Tensor, global_bias: Tensor, scale_global_gemm: Tensor,
                                   global_flags: Tensor, scale_output: Tensor, num_heads: int, window: int) -> Tensor:
    qkv = projected_steps(input, weight, bias, scale_input, scale_weight, scale_qkv_gemm) * scale_qkv_gemm
    global_qkv = projected_steps(input, global_weight, global_bias, scale_input, scale_global_weight,
                                 scale_global_gemm) * scale_global_gemm
    Y = windowed_attention(torch.to(qkv, torch.float64), torch.to(global_qkv, torch.float64), mask, global_flags,
                           num_heads, window)
    return torch.to(steps_of_8_bits(Y / scale_output), torch.int8)


# Computes attention of int8; scores and weights are rounded to int8 where they have scales.
def attention_of_steps(
        input: Tensor, scale_input: Tensor, scale_Q_gemm: Tensor, scale_K_gemm: Tensor, scale_V_gemm: Tensor,
        Q_weight: Tensor, K_weight: Tensor, V_weight: Tensor, scale_Q_weight: Tensor, scale_K_weight: Tensor,
        scale_V_weight: Tensor, Q_bias: Tensor, K_bias: Tensor, V_bias: Tensor, scale_QKT_gemm: Optional[Tensor],
        scale_QKT_softmax: Optional[Tensor], scale_values_gemm: Tensor, mask_index: Optional[Tensor],
        past: Optional[Tensor], attention_bias: Optional[Tensor], num_heads: int, unidirectional: bool) -> Tensor:
    q = split_heads(projected_steps(input, Q_weight, Q_bias / scale_Q_gemm, scale_input, scale_Q_weight, scale_Q_gemm),
                    num_heads)
    k = split_heads(projected_steps(input, K_weight, K_bias / scale_K_gemm, scale_input, scale_K_weight, scale_K_gemm),
                    num_heads)
    v = split_heads(projected_steps(input, V_weight, V_bias / scale_V_gemm, scale_input, scale_V_weight, scale_V_gemm),
                    num_heads)
    past_length = 0
    if past is not None:
        assert past.dim() == 5 and past.size(0) == 2, "past has shape {}, not [2, ...]".format(past.size())
        past_length = past.size(3)
        k, v = with_past(k, torch.to(past[0], k.dtype)), with_past(v, torch.to(past[1], v.dtype))
    keys = k.size(2)
    scores = torch.matmul(q, torch.transpose(k, 2, 3)) * (scale_Q_gemm * scale_K_gemm)
    if scale_QKT_gemm is not None:
        scores = steps_of_8_bits(scores / scale_QKT_gemm) * scale_QKT_gemm
    scores = scores / torch.sqrt(q.size(3))
    if attention_bias is not None:
        scores = scores + attention_bias
    is_open = allowed_by_position(q, keys, past_length, None, unidirectional, None, None)
    if mask_index is not None:
        by_mask = open_keys(mask_index, q.size(0), q.size(2), keys)
        if by_mask is not None:
            is_open = both(is_open, by_mask)
    if is_open is not None:
        scores = torch.where(is_open, scores, float("-inf"))
    weights = masked_softmax(scores, is_open, torch.float32)
    if scale_QKT_softmax is not None:
        weights = steps_of_8_bits(weights / scale_QKT_softmax) * scale_QKT_softmax
    Y = torch.matmul(weights, v) * (scale_V_gemm / scale_values_gemm)
    return torch.to(merge_heads(steps_of_8_bits(Y)), torch.int8)


# --- DynamicSparseAttention ---


# Normalizes each head of [batch, heads, sequence, size] by its mean square, and rotates it from rotary_offset on.
def normed_and_turned(x: Tensor, norm_weight: Optional[Tensor], epsilon: float, cos_cache: Optional[Tensor],
                      sin_cache: Optional[Tensor], position: Tensor, rotary_offset: int,
                      rotary_interleaved: bool) -> Tensor:
    if norm_weight is not None:
        wide = torch.to(x, torch.float32)
        wide = wide * torch.rsqrt(torch.mean(wide * wide, -1, True) + epsilon) * norm_weight
        x = torch.to(wide, x.dtype)
    if cos_cache is None or sin_cache is None:
        return x
    dim = 2 * cos_cache.size(1)
    assert rotary_offset + dim <= x.size(3), "a head of {} elements has no {} to turn from the one numbered {}".format(
        x.size(3), dim, rotary_offset)
    turned = rotary_embedding(torch.slice(x, 3, rotary_offset), cos_cache, sin_cache, position, None, dim,
                              rotary_interleaved)
    return torch.cat([torch.slice(x, 3, 0, rotary_offset), turned], 3)


# Marks the positions of a source that the rows of selected_indices name, [batch, 1, sequence, positions]; each row may
# name those below its limit.
def selected_positions(selected_indices: Tensor, selected_counts: Tensor, limit: Tensor, positions: int) -> Tensor:
    count = torch.reshape(selected_counts, [limit.size(0), limit.size(1), 1])
    index = torch.reshape(selected_indices, [limit.size(0), limit.size(1), selected_indices.size(1)])
    most = index.size(2)
    assert bool(torch.all((count >= 0) & (count <= most))), (
        "a number in selected_counts is not from 0 to {}".format(most))
    is_active = torch.arange(most, device=index.device) < count
    is_there = (index >= 0) & (index < torch.unsqueeze(limit, 2))
    assert bool(torch.all(is_there | torch.logical_not(is_active))), (
        "selected_indices has a position that its query cannot attend to")
    places = torch.where(is_active, index, positions).to(torch.int64)
    selected = torch.zeros([limit.size(0), limit.size(1), positions + 1], dtype=torch.bool, device=index.device)
    return torch.unsqueeze(torch.scatter(selected, 2, places, True)[:, :, :positions], 1)


def dynamic_sparse_attention(
        query: Tensor, key: Optional[Tensor], value: Optional[Tensor], past_key: Optional[Tensor],
        past_value: Optional[Tensor], auxiliary_key: Optional[Tensor], auxiliary_value: Optional[Tensor],
        selected_indices: Tensor, selected_counts: Tensor, seqlens_k: Tensor, total_sequence_length: int,
        cos_cache: Optional[Tensor], sin_cache: Optional[Tensor], position_ids: Optional[Tensor],
        q_norm_weight: Optional[Tensor], k_norm_weight: Optional[Tensor], head_sink: Optional[Tensor], num_heads: int,
        kv_num_heads: int, do_rotary: bool, rotary_interleaved: bool, rotary_offset: int, qk_norm_epsilon: float,
        local_window_size: int, smooth_softmax: bool, auxiliary_kv_shared: bool, use_auxiliary: bool,
        scale: Optional[float]) -> Tuple[Tensor, Tensor, Tensor]:
    if key is not None and value is not None:
        q, k, v = split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    else:
        assert key is None and value is None, "key and value come together"
        heads = torch.split_with_sizes(split_heads(query, num_heads + 2 * kv_num_heads),
                                       [num_heads, kv_num_heads, kv_num_heads], 1)
        q, k, v = heads[0], heads[1], heads[2]
    batch, length = q.size(0), q.size(2)

    # Each sequence writes into the cache at a place of its own.
    shape = [batch, kv_num_heads, total_sequence_length, q.size(3)]
    cache_key = torch.zeros(shape, dtype=q.dtype, device=q.device) if past_key is None else past_key
    cache_value = torch.zeros(shape, dtype=q.dtype, device=q.device) if past_value is None else past_value
    assert (past_key is None) == (past_value is None), "past_key and past_value come together"
    capacity = cache_key.size(2)
    total = torch.reshape(seqlens_k, [batch, 1]) + 1
    assert bool(torch.all((total >= length) & (total <= min(capacity, total_sequence_length)))), (
        "a number in seqlens_k does not suit {} new positions and a cache of {}".format(
            length, min(capacity, total_sequence_length)))
    query_position = (total - length + torch.arange(length, device=q.device)).to(torch.int64)
    cos, sin = (cos_cache, sin_cache) if do_rotary else (None, None)
    position = query_position if position_ids is None else position_ids
    assert cos_cache is None or not do_rotary or bool(torch.all((position >= 0) & (position < cos_cache.size(0)))), (
        "a position has no place in cos_cache")
    q = normed_and_turned(q, q_norm_weight, qk_norm_epsilon, cos, sin, position, rotary_offset, rotary_interleaved)
    k = normed_and_turned(k, k_norm_weight, qk_norm_epsilon, cos, sin, position, rotary_offset, rotary_interleaved)
    places = torch.reshape(query_position, [batch, 1, length, 1]).expand(k.size())
    present_key = torch.scatter(cache_key, 2, places, k)
    present_value = torch.scatter(cache_value, 2, places, v)

    # A query attends to selected positions of the cache, or to its last ones and selected positions of the other
    # source.
    keys, values = present_key, present_value
    if use_auxiliary:
        assert auxiliary_key is not None, "selected_kv_source is auxiliary, and there is no auxiliary_key"
        others = auxiliary_key.size(2)
        other_values = auxiliary_key if auxiliary_value is None else auxiliary_value
        assert auxiliary_value is not None or auxiliary_kv_shared, "auxiliary_value is left out, and not shared"
        behind = torch.unsqueeze(query_position, 2) - torch.arange(capacity, device=q.device)
        is_local = torch.unsqueeze((behind >= 0) & (behind < local_window_size), 1)
        limit = torch.full_like(query_position, others)
        is_open = torch.cat([is_local, selected_positions(selected_indices, selected_counts, limit, others)], 3)
        keys, values = torch.cat([keys, auxiliary_key], 2), torch.cat([values, other_values], 2)
    else:
        is_open = selected_positions(selected_indices, selected_counts, query_position + 1, capacity)

    # A sink is a key of zeros whose score is added.
    mask = torch.where(is_open, 0.0, float("-inf"))
    if head_sink is not None or smooth_softmax:
        sink = torch.zeros([num_heads], device=q.device) if head_sink is None else head_sink
        assert sink.size() == [num_heads], "head_sink has shape {}, not {}".format(sink.size(), [num_heads])
        score = torch.reshape(sink, [1, -1, 1, 1]).expand([batch, num_heads, length, 1])
        mask = torch.cat([mask.expand([batch, num_heads, length, mask.size(3)]), score.to(mask.dtype)], 3)
        keys, values = torch.pad(keys, [0, 0, 0, 1], "constant", 0.0), torch.pad(values, [0, 0, 0, 1], "constant", 0.0)
    return merge_heads(attended_heads(q, keys, values, mask.to(q.dtype), False, scale)), present_key, present_value
