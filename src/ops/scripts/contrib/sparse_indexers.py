# SparseAttentionIndexer, PackedSparseAttentionIndexer.
# They select the entries that each query is to attend to: blocks of tokens ("qsa"), or what windows of tokens are
# compressed to ("csa").


# Looks up the angles of positions of [batch, count], in a table for all of the batch or for each of it. Positions
# beyond it take its last row.
def angles_of(cache: Tensor, position: Tensor) -> Tensor:
    assert cache.dim() == 2 or cache.dim() == 3, "cos_cache and sin_cache must have 2 or 3 dimensions"
    rows = torch.clamp(position, 0, cache.size(-2) - 1)
    if cache.dim() == 2:
        return cache[rows].to(torch.float32)
    return cache[torch.unsqueeze(torch.arange(position.size(0), device=cache.device), 1), rows].to(torch.float32)


# Rotates the first elements, as many as there are angles, by halves, or else the last ones by pairs, an angle for each.
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


# Normalizes and rotates the heads of queries; gives [batch, sequence, heads, size].
def index_queries(query: Tensor, weight: Tensor, epsilon: float, cos_cache: Tensor, sin_cache: Tensor,
                  position: Tensor, trailing: bool) -> Tensor:
    q = scaled_to_norm(torch.unflatten(query, 2, [-1, weight.size(0)]), weight, epsilon)
    cos, sin = angles_of(cos_cache, position), angles_of(sin_cache, position)
    return rotated_by(q, torch.unsqueeze(cos, 2), torch.unsqueeze(sin, 2), trailing)


# Averages blocks of tokens, [batch, blocks, tokens, size], and normalizes and rotates the means.
def index_keys(blocks: Tensor, weight: Tensor, epsilon: float, cos_cache: Tensor, sin_cache: Tensor,
               position: Tensor) -> Tensor:
    keys = scaled_to_norm(torch.mean(blocks.to(torch.float32), 2), weight, epsilon)
    return rotated_by(keys, angles_of(cos_cache, position), angles_of(sin_cache, position), False)


# Gives the first `count` indices of each row by falling values, the smaller index of equal ones first.
def places_by_score(scores: Tensor, count: int) -> Tensor:
    _, places = torch.sort(scores, stable=True, dim=-1, descending=True)
    return torch.slice(places, -1, 0, count)


# Gives for rows of queries the tokens of the best blocks, behind them those of the block that is not full, and -1; and
# their count. `tokens` are those that a query sees, as many as `seen`, and blocks are made of them.
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


# Counts the whole blocks or windows that a query at a position has up to there.
def whole_windows(position: Tensor, ratio: int) -> Tensor:
    return torch.div(torch.clamp_min(position, -1) + 1, ratio, rounding_mode="floor")


# Gives for rows of queries the best of the entries before `ends`, and -1; and their count.
def selected_windows(scores: Tensor, ends: Tensor, count: int) -> Tuple[Tensor, Tensor]:
    allowed = torch.arange(scores.size(1), device=scores.device) < torch.unsqueeze(ends, 1)
    best = places_by_score(torch.where(allowed, scores, float("-inf")), count)
    best = torch.where(best < torch.unsqueeze(ends, 1), best, -1)
    best = torch.constant_pad_nd(best, [0, count - best.size(1)], -1).to(torch.int32)
    return best, torch.sum(best >= 0, 1).to(torch.int32)


# Compresses windows of `ratio` tokens, of `kv` and `gate` of [batch, tokens, 2 * size], which begin with `before`
# tokens of the window before them. A window becomes the sum, weighted by a softmax, of the first halves of the window
# before it and of its own second halves.
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


# Counts the tokens that stay for the next windows: those of the last whole window, and those behind it.
def kept_for_windows(tokens: int, before: int, windows: int, ratio: int) -> int:
    return tokens - before - windows * ratio + (ratio if windows > 0 else before)


# Appends keys of [batch, rows, size] to a past; if it is a buffer, behind its first `length` rows, which stay in place.
def with_new_keys(past: Tensor, new: Tensor, length: Optional[int]) -> Tensor:
    if length is None:
        return torch.cat([past, new], 1)
    rows = with_rows_at(torch.unsqueeze(past, 1), torch.unsqueeze(new, 1), length)
    return torch.squeeze(rows, 1)


# Lists the tokens that each query sees, in their order, and counts them; gives [rows, tokens] and [rows].
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


# Sums over the heads of each query the positive parts of its products with keys of [batch, rows or 1, keys, size];
# gives [batch, queries, keys].
def index_scores(q: Tensor, keys: Tensor, head_weights: Optional[Tensor], scale: float) -> Tensor:
    products = torch.relu(torch.matmul(q, torch.transpose(keys, 2, 3)))
    if head_weights is not None:
        products = products * torch.unsqueeze(head_weights.to(torch.float32), 3)
    return torch.sum(products, 2) * scale


# Gives query and key, also where a row of the query holds both.
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


# Describes sequences whose tokens follow one another: the first token of each, the count of its new tokens, the count
# of those before them, and the entries and pending tokens in its states.
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


# Replaces the rows of a state from `start` on.
def with_state(state: Tensor, rows: Tensor, start: int) -> Tensor:
    assert state.dim() == 2 and state.size(1) == rows.size(1), "a state of shape {} does not take rows of {}".format(
        state.size(), rows.size())
    assert start + rows.size(0) <= state.size(0), "a state is smaller than its lengths tell"
    return torch.slice_scatter(state, rows.to(state.dtype), 0, start, start + rows.size(0))


def stacked(rows: List[Tensor], otherwise: Tensor) -> Tensor:
    return otherwise if len(rows) == 0 else torch.stack(rows)


# Selects tokens for packed sequences. A sequence whose new entries do not fit into its state selects nothing, and
# leaves all states as they are.
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
            # Each of the first tokens has made a block whole, which is captured, or is in the buffer itself.
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
