# SparseAttention.


# Makes the mask of blocks, [layouts, rows, columns], of the borders of its rows and the columns of its entries; entries
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
