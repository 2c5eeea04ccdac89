# PagedAttention, SparsePagedAttention.


def unsqueezed(x: Optional[Tensor]) -> Optional[Tensor]:
    return None if x is None else torch.unsqueeze(x, 0)


# Rotates the elements of a head from `offset` on.
def rotated_from(x: Tensor, offset: int, positions: Tensor, cos_cache: Tensor, sin_cache: Tensor,
                 interleaved: bool) -> Tensor:
    assert offset >= 0, "rotary_offset must not be negative"
    if offset == 0:
        return rotated(x, positions, cos_cache, sin_cache, interleaved)
    turned = rotated(torch.slice(x, 3, offset), positions, cos_cache, sin_cache, interleaved)
    return torch.cat([torch.slice(x, 3, 0, offset), turned], 3)


# Counts the new tokens of each sequence.
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


# Gives the slots of positions of sequences: rows among those of all blocks of a cache; -1 where there is no block.
def slots_in_blocks(block_table: Tensor, sequence: Tensor, position: Tensor, block_size: int) -> Tensor:
    block = block_table[sequence, torch.div(position, block_size, rounding_mode="floor")].to(torch.int64)
    return torch.where(block < 0, -1, block * block_size + torch.remainder(position, block_size))


# Writes new rows of [1, heads, tokens, size] into a cache of [blocks, rows, heads, size]; those without a slot are
# dropped.
def with_rows_in_slots(cache: Tensor, new: Tensor, slots: Tensor) -> Tensor:
    assert cache.dim() == 4 and cache.size(2) == new.size(1) and cache.size(3) == new.size(3), (
        "a cache of shape {} does not take rows of shape {}".format(cache.size(), new.size()))
    rows = as_bytes(torch.flatten(cache, 0, 1))
    rows = torch.cat([torch.zeros([1] + rows.size()[1:], dtype=rows.dtype, device=rows.device), rows])
    places = torch.clamp_min(slots, -1) + 1
    rows = torch.index_put(rows, [places], as_bytes(torch.transpose(torch.squeeze(new, 0), 0, 1)))
    return torch.reshape(from_bytes(torch.slice(rows, 0, 1), cache.dtype), cache.size())


# Gathers the rows of slots of [batch, keys], as [batch, heads, keys, size].
def rows_in_slots(cache: Tensor, slots: Tensor) -> Tensor:
    rows = as_bytes(torch.flatten(cache, 0, 1))[torch.clamp_min(slots, 0)]
    return from_bytes(torch.transpose(rows, 1, 2), cache.dtype)


# Marks for each token the entries below `length` that it selects, [tokens, length].
def selected_entries(selected_indices: Tensor, selected_counts: Tensor, length: int) -> Tensor:
    device = selected_indices.device
    counted = torch.arange(selected_indices.size(1), device=device) < torch.unsqueeze(selected_counts, 1)
    valid = both(counted, torch.logical_and(selected_indices >= 0, selected_indices < length))
    mask = torch.zeros([selected_indices.size(0), length + 1], dtype=torch.bool, device=device)
    places = torch.where(valid, selected_indices, length).to(torch.int64)
    return torch.slice(torch.scatter(mask, 1, places, True), 1, 0, length)


# Appends the keys or values of an auxiliary cache of [batch, length, heads or 1, size].
def with_auxiliary(x: Tensor, auxiliary: Tensor) -> Tensor:
    return torch.cat([x, torch.expand(torch.transpose(auxiliary, 1, 2), [-1, x.size(1), -1, -1])], 2)


# Counts the new tokens of each sequence, and gives each token's sequence and its place among that one's new tokens.
def places_of_tokens(cumulative_sequence_length: List[int], past_seqlens: List[int],
                     tokens: int, device: Device) -> Tuple[List[int], Tensor, Tensor]:
    counts = counts_of_new(cumulative_sequence_length, past_seqlens, tokens)
    sequences = torch.arange(len(counts), device=device)
    sequence = torch.repeat_interleave(sequences, torch.tensor(counts, dtype=torch.int64, device=device))
    first = torch.tensor(cumulative_sequence_length, dtype=torch.int64, device=device)
    return counts, sequence, torch.arange(tokens, device=device) - first[sequence]


# Computes attention of tokens, which belong to sequences one after the other; keys and values are in blocks. A value is
# the beginning of its key where `latent`. Where tokens select entries, of the cache or of an auxiliary one, they attend
# to those, and where `with_local` also to the keys that they see otherwise.
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

    # New rows go into the cache, from which the rows of each sequence are taken in their order.
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

    # Each sequence's queries are in a row of their own, which is as long as the longest one.
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
