# Attention, QAttention of onnxruntime.


# The keys that mask_index lets be attended to, [batch or 1, 1, queries or 1, keys]; None where it hides none. It holds
# - the end of each sequence, then maybe their starts, or what tells the places of sequences in a packed batch (rank 1),
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


# What is added to the scores, [batch or 1, heads or 1, queries or 1, keys]. A key after a query is hidden by the lowest
# number, and is attended to where all others are hidden as well.
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


# The cosines and sines of positions from `past` on, [1, positions, dim / 2] each.
def rotary_tables(past: int, positions: int, dim: int, device: Device) -> Tuple[Tensor, Tensor]:
    assert dim > 0 and dim % 2 == 0, "a rotary embedding of {} dimensions does not consist of pairs".format(dim)
    frequency = torch.pow(10000.0, torch.arange(0, dim, 2, dtype=torch.float32, device=device) / -dim)
    position = torch.arange(past, past + positions, dtype=torch.float32, device=device)
    angle = torch.reshape(position, [1, -1, 1]) * frequency
    return torch.cos(angle), torch.sin(angle)


# Q or K, [batch, heads, sequence, size], turned by its positions.
def turned_by_position(x: Tensor, past: int, rotary_embedding_dim: int) -> Tensor:
    dim = x.size(3) if rotary_embedding_dim == 0 else rotary_embedding_dim
    assert dim <= x.size(3), "rotary_embedding_dim is {}, a head has {} elements".format(dim, x.size(3))
    cos, sin = rotary_tables(past, x.size(2), dim, x.device)
    return torch.to(rotary_embedding(x, cos, sin, None, None, dim, False), x.dtype)


# Q, K and V, which lie side by side.
def split_projection(qkv: Tensor, qkv_hidden_sizes: Optional[List[int]]) -> Tuple[Tensor, Tensor, Tensor]:
    hidden_sizes = [qkv.size(-1) // 3] * 3 if qkv_hidden_sizes is None else qkv_hidden_sizes
    assert len(hidden_sizes) == 3, "qkv_hidden_sizes has {} elements, not 3".format(len(hidden_sizes))
    parts = torch.split_with_sizes(qkv, hidden_sizes, -1)
    return parts[0], parts[1], parts[2]


# Attention among what lies side by side in `qkv`, [batch, sequence, hidden sizes]; Y and, where wanted, the present state.
def projected_attention(qkv: Tensor, mask_index: Optional[Tensor], past: Optional[Tensor],
                        attention_bias: Optional[Tensor], past_sequence_length: Optional[int], num_heads: int,
                        qkv_hidden_sizes: Optional[List[int]], unidirectional: bool, do_rotary: bool,
                        rotary_embedding_dim: int, past_present_share_buffer: bool, mask_filter_value: float,
                        scale: Optional[float], num_outputs: int) -> Tuple[Tensor, Tensor]:
    assert qkv.dim() == 3, "the input has {} dimensions, not 3".format(qkv.dim())
    Q, K, V = split_projection(qkv, qkv_hidden_sizes)
    q, k, v = split_heads(Q, num_heads), split_heads(K, num_heads), split_heads(V, num_heads)
    queries = q.size(2)

    past_key: Optional[Tensor] = None
    past_value: Optional[Tensor] = None
    past_length = 0
    if past is not None:
        assert past.dim() == 5 and past.size(0) == 2, "past has shape {}, not that of keys and values".format(past.size())
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
        is_open = open_keys(mask_index, q.size(0), queries, keys)
    mask = added_to_scores(is_open, mask_filter_value, unidirectional, attention_bias, queries, keys, q.dtype)
    Y, present_key, present_value, _ = attention(
        q, k, v, mask, past_key, past_value, None, unidirectional and is_open is None, None, None, None, None, scale,
        0.0, 0, torch.float32, None, True)
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


def fused_attention(input: Tensor, weights: Tensor, bias: Optional[Tensor], mask_index: Optional[Tensor],
                    past: Optional[Tensor], attention_bias: Optional[Tensor], past_sequence_length: Optional[int],
                    num_heads: int, qkv_hidden_sizes: Optional[List[int]], unidirectional: bool, do_rotary: bool,
                    rotary_embedding_dim: int, past_present_share_buffer: bool, mask_filter_value: float,
                    scale: Optional[float], num_outputs: int) -> Tuple[Tensor, Tensor]:
    return projected_attention(projected(input, weights, bias), mask_index, past, attention_bias, past_sequence_length,
                               num_heads, qkv_hidden_sizes, unidirectional, do_rotary, rotary_embedding_dim,
                               past_present_share_buffer, mask_filter_value, scale, num_outputs)


# The product of integers less their zero points: one zero point for all of a, one for all or for each column of b.
def integer_product(a: Tensor, b: Tensor, a_zero_point: Optional[Tensor], b_zero_point: Optional[Tensor]) -> Tensor:
    dtype = torch.float32 if a.size(-1) * 255 * 255 <= 1 << 24 else torch.float64
    a_zero = None if a_zero_point is None else one_for_all(torch.to(a_zero_point, dtype))
    b_zero = None if b_zero_point is None else per_column(torch.to(b_zero_point, dtype))
    return int32_of(torch.matmul(dequantize_linear(a, None, a_zero, dtype), dequantize_linear(b, None, b_zero, dtype)))


# Its kernels pay no regard to do_rotary, and refuse a shared past, as there is no input that tells its length.
def quantized_attention(input: Tensor, weight: Tensor, bias: Tensor, input_scale: Tensor, weight_scale: Tensor,
                        mask_index: Optional[Tensor], input_zero_point: Optional[Tensor],
                        weight_zero_point: Optional[Tensor], past: Optional[Tensor], num_heads: int,
                        unidirectional: bool, past_present_share_buffer: bool, mask_filter_value: float,
                        scale: Optional[float], num_outputs: int) -> Tuple[Tensor, Tensor]:
    unit = one_for_all(torch.to(input_scale, torch.float32)) * per_column(torch.to(weight_scale, torch.float32))
    sums = torch.to(integer_product(input, weight, input_zero_point, weight_zero_point), torch.float32)
    qkv = torch.to(sums * unit, bias.dtype) + bias
    return projected_attention(qkv, mask_index, past, None, None, num_heads, None, unidirectional, False, 0,
                               past_present_share_buffer, mask_filter_value, scale, num_outputs)


# --- Biases by relative position ---


# Which bucket each distance of a key from a query falls into, [queries, keys]: small distances have one each, larger
# ones share them, in logarithmic steps up to max_distance.
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


# The table has the buckets of one head after those of another, whatever its shape says.
def relative_position_bias(bias_table: Tensor, query_length: int, key_length: int, max_distance: int,
                           is_bidirectional: bool) -> Tensor:
    assert bias_table.dim() == 2, "bias_table has {} dimensions, not 2".format(bias_table.dim())
    buckets, heads = bias_table.size(0), bias_table.size(1)
    bucket = distance_buckets(query_length, key_length, buckets, max_distance, is_bidirectional, bias_table.device)
    bias = torch.index_select(torch.reshape(bias_table, [heads, buckets]), 1, torch.flatten(bucket))
    return torch.reshape(bias, [1, heads, query_length, key_length])


# Two gates for each query, the sums over halves of what `weight` makes of it.
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


# [tokens, …] as [batch, sequence, …], zero where there is padding.
def restored_padding(input: Tensor, token_offset: Tensor) -> Tensor:
    assert token_offset.dim() == 2, "token_offset has {} dimensions, not 2".format(token_offset.dim())
    sizes = input.size()[1:]
    places = torch.flatten(token_offset)[:input.size(0)]
    rows = torch.zeros([token_offset.numel()] + sizes, dtype=input.dtype, device=input.device)
    return torch.unflatten(torch.index_copy(rows, 0, places.to(torch.int64), input), 0, token_offset.size())


# Attention among the tokens of each sequence; Q, K and V are [tokens, hidden size].
def attention_of_packed(q: Tensor, k: Tensor, v: Tensor, token_offset: Tensor, cumulative_sequence_length: Tensor,
                        attention_bias: Optional[Tensor], num_heads: int, scale: Optional[float]) -> Tensor:
    ends = torch.reshape(cumulative_sequence_length, [-1, 1, 1, 1])
    assert ends.size(0) == token_offset.size(0) + 1, "cumulative_sequence_length has {} elements, not {}".format(
        ends.size(0), token_offset.size(0) + 1)
    is_open = torch.arange(token_offset.size(1), device=q.device) < ends[1:] - ends[:-1]
    Y, _, _, _ = attention(
        restored_padding(q, token_offset), restored_padding(k, token_offset), restored_padding(v, token_offset),
        combined_mask(attention_bias, is_open), None, None, None, False, num_heads, num_heads, None, None, scale, 0.0,
        0, torch.float32, None, True)
    return torch.index_select(torch.flatten(Y, 0, 1), 0, torch.flatten(token_offset)[:q.size(0)])


def packed_attention(input: Tensor, weights: Tensor, bias: Tensor, token_offset: Tensor,
                     cumulative_sequence_length: Tensor, attention_bias: Optional[Tensor], num_heads: int,
                     qkv_hidden_sizes: Optional[List[int]], scale: Optional[float]) -> Tensor:
    q, k, v = split_projection(projected(input, weights, bias), qkv_hidden_sizes)
    return attention_of_packed(q, k, v, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale)


# Its kernels hide what is no key of a sequence altogether, and pay no regard to mask_filter_value.
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
