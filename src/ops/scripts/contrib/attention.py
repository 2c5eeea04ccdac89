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


# Attention among what lies side by side in `qkv`, [batch, sequence, hidden sizes]; Y and, where wanted, the present state.
def projected_attention(qkv: Tensor, mask_index: Optional[Tensor], past: Optional[Tensor],
                        attention_bias: Optional[Tensor], past_sequence_length: Optional[int], num_heads: int,
                        qkv_hidden_sizes: Optional[List[int]], unidirectional: bool, do_rotary: bool,
                        rotary_embedding_dim: int, past_present_share_buffer: bool, mask_filter_value: float,
                        scale: Optional[float], num_outputs: int) -> Tuple[Tensor, Tensor]:
    assert qkv.dim() == 3, "the input has {} dimensions, not 3".format(qkv.dim())
    hidden_sizes = [qkv.size(2) // 3] * 3 if qkv_hidden_sizes is None else qkv_hidden_sizes
    assert len(hidden_sizes) == 3, "qkv_hidden_sizes has {} elements, not 3".format(len(hidden_sizes))
    parts = torch.split_with_sizes(qkv, hidden_sizes, 2)
    q, k, v = split_heads(parts[0], num_heads), split_heads(parts[1], num_heads), split_heads(parts[2], num_heads)
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
