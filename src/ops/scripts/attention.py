# Attention, FlexAttention, RotaryEmbedding, LinearAttention.


# Makes [batch, heads, sequence, size] of [batch, sequence, heads * size]; without `heads` it is so already.
def split_heads(x: Tensor, heads: Optional[int]) -> Tensor:
    if heads is None:
        return x
    return torch.transpose(torch.unflatten(x, 2, [heads, -1]), 1, 2)


def merge_heads(x: Tensor) -> Tensor:
    return torch.flatten(torch.transpose(x, 1, 2), 2)


# Repeats each key and value head for the query heads of its group.
def repeat_heads(x: Tensor, heads: int) -> Tensor:
    if x.size(1) == heads:
        return x
    groups = max(x.size(1), 1)
    assert heads % groups == 0, "the number of query heads must be a multiple of that of key and value heads"
    return torch.repeat_interleave(x, heads // groups, 1)


def with_past(x: Tensor, past: Optional[Tensor]) -> Tensor:
    if past is None:
        return x
    return torch.cat([past, x], 2)


# Makes a mask of 4 dimensions and as many keys as there are; keys that it lacks are not attended to.
def padded_mask(mask: Tensor, keys: int, dtype: int) -> Tensor:
    if mask.dtype == torch.bool:
        mask = torch.pad(mask, [0, keys - mask.size(-1)], "constant", 0.0)
    else:
        mask = torch.pad(torch.to(mask, dtype), [0, keys - mask.size(-1)], "constant", float("-inf"))
    while mask.dim() < 4:
        mask = torch.unsqueeze(mask, 0)
    return mask


# Tells which keys each query may attend to by its position, [batch or 1, 1, queries or 1, keys].
def allowed_by_position(Q: Tensor, keys: int, past: int, nonpad_kv_seqlen: Optional[Tensor], is_causal: bool,
                        left_window_size: Optional[int], right_window_size: Optional[int]) -> Optional[Tensor]:
    left = -1 if left_window_size is None else left_window_size
    right = -1 if right_window_size is None else right_window_size
    allowed: Optional[Tensor] = None
    key = torch.arange(keys, device=Q.device)
    query = torch.reshape(torch.arange(Q.size(2), device=Q.device), [1, 1, -1, 1]) + past
    if nonpad_kv_seqlen is not None:
        lengths = torch.reshape(nonpad_kv_seqlen, [-1, 1, 1, 1])
        query = query + (lengths - Q.size(2))
        allowed = key < lengths
    if is_causal:
        allowed = both(allowed, key <= query)
    if left >= 0:
        allowed = both(allowed, key >= query - left)
    if right >= 0:
        allowed = both(allowed, key <= query + right)
    return allowed


def both(allowed: Optional[Tensor], also: Tensor) -> Tensor:
    if allowed is None:
        return also
    return torch.logical_and(allowed, also)


# Joins the attention mask (boolean, or to be added) and the one by position into one mask.
def combined_mask(mask: Optional[Tensor], allowed: Optional[Tensor]) -> Optional[Tensor]:
    if mask is None:
        return allowed
    if allowed is None:
        return mask
    if mask.dtype == torch.bool:
        return torch.logical_and(mask, allowed)
    return torch.where(allowed, mask, float("-inf"))


def attention_mask(Q: Tensor, keys: int, past: int, attn_mask: Optional[Tensor], nonpad_kv_seqlen: Optional[Tensor],
                   is_causal: bool, left_window_size: Optional[int],
                   right_window_size: Optional[int]) -> Optional[Tensor]:
    allowed = allowed_by_position(Q, keys, past, nonpad_kv_seqlen, is_causal, left_window_size, right_window_size)
    mask: Optional[Tensor] = None
    if attn_mask is not None:
        mask = padded_mask(attn_mask, keys, Q.dtype)
    return combined_mask(mask, allowed)


def scaled_scores(Q: Tensor, K: Tensor, scale: Optional[float]) -> Tensor:
    root = torch.scalar_tensor(torch.sqrt(1 / torch.sqrt(Q.size(3)) if scale is None else scale), dtype=Q.dtype)
    return torch.matmul(Q * root, torch.transpose(repeat_heads(K, Q.size(1)) * root, 2, 3))


# Computes softmax over the keys, in `dtype`.
def softmax_in(scores: Tensor, dtype: int) -> Tensor:
    scores = torch.to(scores, dtype)
    if dtype == torch.float16 or dtype == torch.bfloat16:
        return softmax_by_steps(scores, -1)
    return torch.softmax(scores, -1)


# Computes softmax, but gives 0 where a query may attend to no key.
def masked_softmax(scores: Tensor, mask: Optional[Tensor], softmax_dtype: int) -> Tensor:
    weights = softmax_in(scores, softmax_dtype)
    if mask is None:
        return weights
    closed = torch.logical_not(mask) if mask.dtype == torch.bool else mask == float("-inf")
    return torch.masked_fill(weights, torch.all(closed, -1, True), 0)


# Computes Y, and the scores or weights that qk_matmul_output_mode asks for.
def composed_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Optional[Tensor], scale: Optional[float],
                       softcap: float, softmax_dtype: int, qk_matmul_output_mode: int) -> Tuple[Tensor, Tensor]:
    scores = scaled_scores(Q, K, scale)
    capped = torch.tanh(scores / softcap) * softcap if softcap > 0 else scores
    biased = capped
    if mask is not None:
        if mask.dtype == torch.bool:
            biased = torch.where(mask, capped, float("-inf"))
        else:
            biased = capped + mask
    weights = torch.to(masked_softmax(biased, mask, softmax_dtype), Q.dtype)
    Y = torch.matmul(weights, repeat_heads(V, Q.size(1)))
    if qk_matmul_output_mode == 0:
        return Y, scores
    if qk_matmul_output_mode == 1:
        return Y, capped
    if qk_matmul_output_mode == 2:
        return Y, biased
    assert qk_matmul_output_mode == 3, "qk_matmul_output_mode must be 0, 1, 2 or 3"
    return Y, weights


# Gives V, after checking that its sizes fit those of Q and K: ATen's scaled_dot_product_attention takes that for
# granted, and reads beyond their ends.
def fitting_values(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    assert Q.dim() == 4 and K.dim() == 4 and V.dim() == 4, "Q, K and V must have 3 or 4 dimensions each"
    assert K.size()[:3] == V.size()[:3], "K of shape {} and V of shape {} do not go together".format(
        K.size(), V.size())
    assert Q.size(0) == K.size(0) and Q.size(3) == K.size(3), "Q of shape {} and K of shape {} do not go together".format(
        Q.size(), K.size())
    heads = K.size(1)
    assert heads > 0 and Q.size(1) % max(heads, 1) == 0, (
        "the number of query heads, {}, must be a multiple of that of key and value heads, {}".format(Q.size(1), heads)
    )
    return V


# Computes attention; where `fused`, by ATen's scaled_dot_product_attention, which gives no qk_matmul_output.
def attention(Q: Tensor, K: Tensor, V: Tensor, attn_mask: Optional[Tensor], past_key: Optional[Tensor],
              past_value: Optional[Tensor], nonpad_kv_seqlen: Optional[Tensor], is_causal: bool,
              q_num_heads: Optional[int], kv_num_heads: Optional[int], left_window_size: Optional[int],
              right_window_size: Optional[int], scale: Optional[float], softcap: float, qk_matmul_output_mode: int,
              softmax_dtype: int, value_dtype: Optional[int], fused: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    q = split_heads(Q, q_num_heads)
    present_key = with_past(split_heads(K, kv_num_heads), past_key)
    present_value = with_past(split_heads(V, kv_num_heads), past_value)
    fitting = fitting_values(q, present_key, present_value)
    v = fitting if value_dtype is None else torch.to(fitting, value_dtype)
    keys = present_key.size(2)
    past = 0 if past_key is None else past_key.size(2)
    plain = (attn_mask is None and past_key is None and nonpad_kv_seqlen is None and left_window_size is None
             and right_window_size is None)
    mask: Optional[Tensor] = None
    if not (fused and plain):
        mask = attention_mask(q, keys, past, attn_mask, nonpad_kv_seqlen, is_causal, left_window_size,
                              right_window_size)
    if fused:
        Y = torch.scaled_dot_product_attention(q, present_key, v, mask, 0.0, is_causal and plain, scale=scale,
                                               enable_gqa=q.size(1) != present_key.size(1))
        qk = Y
    else:
        Y, qk = composed_attention(q, present_key, v, mask, scale, softcap, softmax_dtype, qk_matmul_output_mode)
    return Y if q_num_heads is None else merge_heads(Y), present_key, present_value, qk


def flex_scores(Q: Tensor, K: Tensor, scale: Optional[float], softmax_dtype: int) -> Tensor:
    return torch.to(scaled_scores(Q, K, scale), softmax_dtype)


def flex_output(probs: Tensor, Q: Tensor, V: Tensor) -> Tensor:
    return torch.to(torch.matmul(probs, torch.to(repeat_heads(V, Q.size(1)), probs.dtype)), V.dtype)


# Repeats a factor of each pair of elements for both of them.
def of_both(factor: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        return torch.repeat_interleave(factor, 2, -1)
    return torch.cat([factor, factor], -1)


# Turns each pair [a, b] into [-b, a]; a pair is two neighbours, or has an element in each half.
def quarter_turn(x: Tensor, half: int, interleaved: bool) -> Tensor:
    if interleaved:
        return torch.flatten(torch.stack([-torch.slice(x, -1, 1, None, 2), torch.slice(x, -1, 0, None, 2)], -1), -2)
    return torch.cat([-torch.slice(x, -1, half), torch.slice(x, -1, 0, half)], -1)


def rotary_embedding(X: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Optional[Tensor],
                     num_heads: Optional[int], rotary_embedding_dim: int, interleaved: bool) -> Tensor:
    cos = torch.unsqueeze(of_both(cos_cache if position_ids is None else cos_cache[position_ids], interleaved), 1)
    sin = torch.unsqueeze(of_both(sin_cache if position_ids is None else sin_cache[position_ids], interleaved), 1)
    x = X if X.dim() == 4 else split_heads(X, num_heads)
    if rotary_embedding_dim == 0 or rotary_embedding_dim == x.size(3):
        Y = x * cos + quarter_turn(x, x.size(3) // 2, interleaved) * sin
    else:
        rotated = torch.slice(x, 3, 0, rotary_embedding_dim)
        turned = rotated * cos + quarter_turn(rotated, rotary_embedding_dim // 2, interleaved) * sin
        Y = torch.cat([turned, torch.slice(x, 3, rotary_embedding_dim)], -1)
    return Y if X.dim() == 4 else merge_heads(Y)


# Does one step after the other, of [time, batch, kv heads, (query heads of a group,) size]. The state is [batch, kv
# heads, key size, value size], of which each step keeps as much as `decay` tells; a sequence keeps all of it where
# `within` tells that it has ended. Gives the outputs of the steps, the states after them, and the values that the steps
# add to the states along with their keys.
def linear_attention_steps(q: Tensor, k: Tensor, v: Tensor, decay: Optional[Tensor], beta: Optional[Tensor],
                           state: Tensor,
                           within: Optional[Tensor]) -> Tuple[List[Tensor], List[Tensor], List[Tensor]]:
    outputs: List[Tensor] = []
    states: List[Tensor] = []
    updates: List[Tensor] = []
    for t in range(k.size(0)):
        before = state
        if decay is not None:
            state = state * torch.unsqueeze(decay[t], 3)
        update = v[t]
        if beta is not None:
            retrieved = torch.squeeze(torch.matmul(torch.unsqueeze(k[t], 2), state), 2)
            update = torch.unsqueeze(beta[t], 2) * (update - retrieved)
        state = state + torch.unsqueeze(k[t], 3) * torch.unsqueeze(update, 2)
        outputs.append(torch.matmul(q[t], state))
        state = kept_past_end(state, before, t, within)
        states.append(state)
        updates.append(update)
    return outputs, states, updates


# Does all steps. Gives their outputs, [batch, time, kv heads, query heads of a group, value size], and the last state.
@kept
def linear_attention_scan(q: Tensor, k: Tensor, v: Tensor, decay: Optional[Tensor], beta: Optional[Tensor],
                          state: Tensor) -> Tuple[Tensor, Tensor]:
    outputs, states, _ = linear_attention_steps(q, k, v, decay, beta, state, None)
    if len(outputs) == 0:
        return torch.zeros([q.size(1), 0, q.size(2), q.size(3), v.size(3)], dtype=q.dtype, device=q.device), state
    return torch.stack(outputs, 1), states[-1]


def linear_attention_scan_of_sizes(q: Tensor, k: Tensor, v: Tensor, decay: Optional[Tensor], beta: Optional[Tensor],
                                   state: Tensor) -> Tuple[Tensor, Tensor]:
    output = torch.zeros([q.size(1), q.size(0), q.size(2), q.size(3), v.size(3)], dtype=q.dtype, device=q.device)
    return output, state


def linear_attention(query: Tensor, key: Tensor, value: Tensor, past_state: Optional[Tensor], decay: Optional[Tensor],
                     beta: Optional[Tensor], kv_num_heads: int, q_num_heads: int, scale: float,
                     update_rule: str) -> Tuple[Tensor, Tensor]:
    assert q_num_heads % kv_num_heads == 0, "q_num_heads must be a multiple of kv_num_heads"
    assert update_rule in ["linear", "gated", "delta", "gated_delta"], "there is no such update_rule"
    gated = update_rule == "gated" or update_rule == "gated_delta"
    delta = update_rule == "delta" or update_rule == "gated_delta"
    assert gated == (decay is not None), "decay is an input of the gated update rules, and of no other"
    assert delta == (beta is not None), "beta is an input of the delta update rules, and of no other"

    k = torch.unflatten(torch.to(key, torch.float32), 2, [kv_num_heads, -1]).transpose(0, 1)
    v = torch.unflatten(torch.to(value, torch.float32), 2, [kv_num_heads, -1]).transpose(0, 1)
    q = torch.unflatten(torch.to(query, torch.float32), 2, [kv_num_heads, q_num_heads // kv_num_heads, -1])
    q = q.transpose(0, 1) * (1 / torch.sqrt(k.size(3)) if scale == 0 else scale)
    gate: Optional[Tensor] = None
    if decay is not None:
        gate = torch.exp(torch.unflatten(torch.to(decay, torch.float32), 2, [kv_num_heads, -1])).transpose(0, 1)
    rate: Optional[Tensor] = None
    if beta is not None:
        rate = torch.to(beta, torch.float32).transpose(0, 1)
    if past_state is None:
        state = torch.zeros([k.size(1), k.size(2), k.size(3), v.size(3)], dtype=torch.float32, device=k.device)
        state_dtype = query.dtype
    else:
        state = torch.to(past_state, torch.float32)
        state_dtype = past_state.dtype
    output, present = linear_attention_scan(q, k, v, gate, rate, state)
    return torch.to(torch.flatten(output, 2), query.dtype), torch.to(present, state_dtype)
