# DecoderMaskedSelfAttention, DecoderAttention.


# Reorders a shared buffer of keys, [batch, heads, length, size], whose elements are in groups of 16 bytes: [batch,
# heads, groups, length, elements of a group].
def keys_in_order(x: Tensor) -> Tensor:
    group = 16 // x.element_size()
    return torch.flatten(torch.transpose(torch.reshape(x, [x.size(0), x.size(1), -1, x.size(2), group]), 2, 3), 3)


def keys_in_groups(x: Tensor) -> Tensor:
    group = 16 // x.element_size()
    return torch.reshape(torch.transpose(torch.unflatten(x, 3, [-1, group]), 2, 3), x.size())


# Rotates the heads of rows at one position, a half against the other, by its multiples of powers of 1 / 10000.
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


# Computes attention of [sequence, batch, hidden]. With a past and static_kv the cache has all keys and values;
# otherwise they are computed from `key`, or from `query` for attention to itself. True in key_padding_mask hides a key.
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
