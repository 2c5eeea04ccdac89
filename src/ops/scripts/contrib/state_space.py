# LinearAttention, LinearAttentionGate, GatedDeltaNet, CausalConvWithState, VarlenCausalConvWithState, AttnLSTM.

# --- Packed sequences, one after another ---


# Gives the index of each token of each sequence, [sequences, longest], and which of these places hold one. Sequence i
# has the tokens from ends[i] to ends[i + 1].
def places_of_sequences(ends: Tensor, tokens: int) -> Tuple[Tensor, Tensor]:
    assert ends.dim() == 1 and ends.size(0) > 0, "the ends of sequences have shape {}".format(ends.size())
    lengths = ends[1:] - ends[:-1]
    assert int(ends[0]) == 0 and int(ends[-1]) == tokens and bool(torch.all(lengths >= 0)), (
        "the ends of sequences do not rise from 0 to {}".format(tokens))
    longest = 0 if lengths.size(0) == 0 else int(torch.max(lengths))
    step = torch.arange(longest, device=ends.device)
    is_there = step < torch.unsqueeze(lengths, 1)
    return torch.where(is_there, torch.unsqueeze(ends[:-1], 1) + step, 0), is_there


# Makes [sequences, longest, …] of [tokens, …].
def by_sequences(x: Tensor, places: Tensor) -> Tensor:
    return torch.unflatten(torch.index_select(x, 0, torch.flatten(places)), 0, places.size())


# Makes [tokens, …] of [sequences, longest, …].
def by_tokens(x: Tensor, is_there: Tensor) -> Tensor:
    return torch.index_select(torch.flatten(x, 0, 1), 0, torch.squeeze(torch.nonzero(torch.flatten(is_there)), 1))


# Takes as many along dimension 1 as is_wanted has, zeros where there are none or they are not wanted, and flattens the
# dimensions behind it.
def first_ones(x: Tensor, is_wanted: Tensor) -> Tensor:
    rows = torch.flatten(x, 2)
    missing = max(is_wanted.size(1) - rows.size(1), 0)
    rows = torch.pad(rows, [0, 0, 0, missing], "constant", 0.0)[:, :is_wanted.size(1)]
    return torch.where(torch.unsqueeze(is_wanted, 2), rows, 0.0)


# --- Linear attention ---


def is_gated(update_rule: str) -> bool:
    assert update_rule in ["linear", "gated", "delta", "gated_delta"], "there is no update_rule " + update_rule
    return update_rule == "gated" or update_rule == "gated_delta"


def is_delta(update_rule: str) -> bool:
    return update_rule == "delta" or update_rule == "gated_delta"


# Gives one state, or those after the last steps, the last of them last; zeros stand for steps that were not.
def window_of_states(state: Tensor, states: List[Tensor], state_window: int) -> Tensor:
    if state_window == 0:
        return state
    window = [torch.zeros_like(state)] * max(state_window - len(states), 0) + states[-state_window:]
    return torch.stack(window)


# Computes linear attention. Queries share a state, or states share a query; a key may have fewer heads as well. Inputs
# that update_rule does not use may be there.
def linear_attention_with_window(query: Tensor, key: Tensor, value: Tensor, past_state: Optional[Tensor],
                                 decay: Optional[Tensor], beta: Optional[Tensor], kv_num_heads: int, q_num_heads: int,
                                 scale: float, state_window: int, update_rule: str) -> Tuple[Tensor, Tensor]:
    sizes = query.size()[:2]
    assert query.dim() == 3 and key.dim() == 3 and value.dim() == 3, "query, key and value must have 3 dimensions each"
    assert key.size()[:2] == sizes and value.size()[:2] == sizes, (
        "query of shape {}, key of shape {} and value of shape {} do not go together".format(
            query.size(), key.size(), value.size()))
    assert q_num_heads % kv_num_heads == 0 or kv_num_heads % q_num_heads == 0, (
        "neither of q_num_heads and kv_num_heads is a multiple of the other")
    q = torch.unflatten(torch.to(query, torch.float32), 2, [q_num_heads, -1])
    size = q.size(3)
    q = torch.repeat_interleave(q, max(kv_num_heads // q_num_heads, 1), 2)
    q = torch.unflatten(q, 2, [kv_num_heads, -1]).transpose(0, 1) * (1 / torch.sqrt(size) if scale == 0 else scale)
    k = torch.unflatten(torch.to(key, torch.float32), 2, [-1, size])
    assert k.size(2) > 0 and kv_num_heads % max(k.size(2), 1) == 0, (
        "kv_num_heads is not a multiple of the {} heads of key".format(k.size(2)))
    k = torch.repeat_interleave(k, kv_num_heads // max(k.size(2), 1), 2).transpose(0, 1)
    v = torch.unflatten(torch.to(value, torch.float32), 2, [kv_num_heads, -1]).transpose(0, 1)

    gate: Optional[Tensor] = None
    if is_gated(update_rule):
        assert decay is not None, "the update_rule needs decay"
        assert decay.size() == sizes + [kv_num_heads] or decay.size() == sizes + [kv_num_heads * size], (
            "decay has shape {}".format(decay.size()))
        gate = torch.exp(torch.unflatten(torch.to(decay, torch.float32), 2, [kv_num_heads, -1])).transpose(0, 1)
    rate: Optional[Tensor] = None
    if is_delta(update_rule):
        assert beta is not None, "the update_rule needs beta"
        assert beta.size() == sizes + [kv_num_heads] or beta.size() == sizes + [1], (
            "beta has shape {}".format(beta.size()))
        rate = torch.to(beta, torch.float32).transpose(0, 1)

    shape = [sizes[0], kv_num_heads, size, v.size(3)]
    state = torch.zeros(shape, dtype=torch.float32, device=query.device)
    state_dtype = query.dtype
    if past_state is not None:
        window = shape if state_window == 0 else [state_window] + shape
        assert past_state.size() == window, "past_state has shape {}, not {}".format(past_state.size(), window)
        state = torch.to(past_state if state_window == 0 else past_state[-1], torch.float32)
        state_dtype = past_state.dtype
    if state_window == 0:
        attended, present = linear_attention_scan(q, k, v, gate, rate, state)
        return torch.to(torch.flatten(attended, 2), query.dtype), torch.to(present, state_dtype)
    steps, states, _ = linear_attention_steps(q, k, v, gate, rate, state, None)
    if len(steps) == 0:
        hidden_size = max(q_num_heads, kv_num_heads) * v.size(3)
        output = torch.zeros(sizes + [hidden_size], dtype=query.dtype, device=query.device)
    else:
        output = torch.to(torch.flatten(torch.stack(steps, 1), 2), query.dtype)
        state = states[-1]
    return output, torch.to(window_of_states(state, states, state_window), state_dtype)


def linear_attention_gate(a: Tensor, dt_bias: Tensor, decay_scale: Tensor, b: Optional[Tensor],
                          num_outputs: int) -> Tuple[Tensor, Tensor]:
    decay = torch.to(decay_scale * torch.softplus(torch.to(a, torch.float32) + dt_bias), a.dtype)
    assert num_outputs < 2 or b is not None, "beta is wanted, and b is not there"
    return decay, decay if b is None else torch.sigmoid(b)


def with_unit_length(x: Tensor) -> Tensor:
    return x * torch.rsqrt(torch.sum(x * x, -1, True) + 1e-12)


# Collects the first steps of each sequence that are wanted, one after another: the factors that a state decays by, the
# keys, and the values that are added to a state along them.
def captured_steps(decay: Optional[Tensor], k: Tensor, updates: Tensor, capacity: int,
                   capture_count: Optional[Tensor], is_active: bool, lengths: Tensor) -> Tensor:
    assert 0 <= capacity and capacity <= 8, "state_update_capacity is not from 0 to 8"
    assert (capacity > 0) == (capture_count is not None), "capture_count comes with a state_update_capacity"
    count = torch.zeros_like(lengths)
    if capture_count is not None and is_active:
        assert capture_count.size() == lengths.size(), "capture_count has shape {}, not {}".format(
            capture_count.size(), lengths.size())
        count = torch.minimum(capture_count, lengths)
    is_wanted = torch.arange(capacity, device=k.device) < torch.unsqueeze(count, 1)
    factor = torch.ones(updates.size()[:3], device=k.device)
    if decay is not None:
        assert capacity == 0 or decay.size(3) == 1, "steps are not captured of a decay for each element of a key"
        factor = torch.exp(torch.squeeze(decay[:, :, :, :1], 3)).transpose(0, 1)
    parts = [first_ones(factor, is_wanted), first_ones(k.transpose(0, 1), is_wanted), first_ones(updates, is_wanted)]
    return torch.cat([torch.flatten(part, 1) for part in parts], 1)


# Computes the operator, whose state has the elements of a value first, and those of a key next.
def gated_delta_net(query: Tensor, key: Optional[Tensor], value: Optional[Tensor], cu_seqlens: Optional[Tensor],
                    decay: Optional[Tensor], beta: Optional[Tensor], initial_state: Optional[Tensor],
                    a_log: Optional[Tensor], dt_bias: Optional[Tensor], capture_count: Optional[Tensor],
                    state_update_active: Optional[int], beta_activation: str, gate_activation: str, qk_l2_norm: bool,
                    scale: float, state_update_capacity: int, update_rule: str) -> Tuple[Tensor, Tensor, Tensor]:
    if key is not None and value is not None:
        q, k, v = query, key, value
    else:
        assert key is None and value is None, "key and value come together"
        assert initial_state is not None and initial_state.dim() == 4, (
            "a packed query needs an initial_state of 4 dimensions")
        of_values = initial_state.size(1) * initial_state.size(2)
        of_keys = (query.size(-1) - of_values) // 2
        parts = torch.split_with_sizes(query, [of_keys, of_keys, of_values], -1)
        q = torch.unflatten(parts[0], -1, [-1, initial_state.size(3)])
        k = torch.unflatten(parts[1], -1, [-1, initial_state.size(3)])
        v = torch.unflatten(parts[2], -1, [initial_state.size(1), initial_state.size(2)])
    sizes = q.size()[:-2]
    assert len(sizes) in [1, 2] and k.size() == q.size() and v.dim() == q.dim() and v.size()[:-2] == sizes, (
        "query of shape {}, key of shape {} and value of shape {} do not go together".format(
            q.size(), k.size(), v.size()))
    heads, key_heads, size = v.size(-2), q.size(-2), q.size(-1)
    assert key_heads > 0 and heads % max(key_heads, 1) == 0, (
        "the {} heads of value are no multiple of the {} of key".format(heads, key_heads))

    # From here on q, k and v are [tokens, heads, …].
    last = len(sizes) - 1
    q = torch.to(torch.flatten(q, 0, last), torch.float32)
    k = torch.to(torch.flatten(k, 0, last), torch.float32)
    v = torch.to(torch.flatten(v, 0, last), torch.float32)
    tokens = q.size(0)
    if qk_l2_norm:
        q, k = with_unit_length(q), with_unit_length(k)
    assert is_gated(update_rule) == (decay is not None), "decay is an input of the gated update rules, and of no other"
    assert is_delta(update_rule) == (beta is not None), "beta is an input of the delta update rules, and of no other"
    assert gate_activation in ["none", "qwen"], "there is no gate_activation " + gate_activation
    assert beta_activation in ["none", "sigmoid"], "there is no beta_activation " + beta_activation
    gate: Optional[Tensor] = None
    if decay is not None:
        assert decay.size() == sizes + [heads] or decay.size() == sizes + [heads, size], (
            "decay has shape {}".format(decay.size()))
        gate = torch.flatten(decay, 0, last)
        if gate.dim() == 2:
            gate = torch.unsqueeze(gate, 2)
        if gate_activation == "qwen":
            assert a_log is not None and dt_bias is not None, "the gate_activation needs a_log and dt_bias"
            gate = -torch.exp(torch.unsqueeze(a_log, 1)) * torch.softplus(gate + torch.unsqueeze(dt_bias, 1))
    rate: Optional[Tensor] = None
    if beta is not None:
        assert beta.size() == sizes + [heads], "beta has shape {}".format(beta.size())
        rate = torch.flatten(beta, 0, last)
        if beta_activation == "sigmoid":
            rate = torch.sigmoid(rate)

    # From here on they are [time, sequences, heads, …].
    if cu_seqlens is not None:
        assert len(sizes) == 1, "cu_seqlens is for tokens in one dimension"
        ends = cu_seqlens
    else:
        assert len(sizes) == 2 or initial_state is not None, (
            "neither cu_seqlens nor initial_state tells how many sequences")
        batch = sizes[0] if initial_state is None else initial_state.size(0)
        assert batch > 0 and tokens % max(batch, 1) == 0, "{} tokens do not make {} sequences".format(tokens, batch)
        ends = torch.arange(batch + 1, device=q.device) * (tokens // max(batch, 1))
    places, is_there = places_of_sequences(ends, tokens)
    within = torch.reshape(is_there.transpose(0, 1), [places.size(1), places.size(0), 1, 1, 1])
    keys = by_sequences(k, places).transpose(0, 1)
    group = heads // max(key_heads, 1)
    queries = torch.repeat_interleave(by_sequences(q, places).transpose(0, 1), group, 2)
    if gate is not None:
        gate = by_sequences(gate, places).transpose(0, 1)
    if rate is not None:
        rate = by_sequences(rate, places).transpose(0, 1)
    shape = [places.size(0), heads, v.size(2), size]
    state = torch.zeros(shape, device=q.device)
    if initial_state is not None:
        assert initial_state.size() == shape, "initial_state has shape {}, not {}".format(initial_state.size(), shape)
        state = initial_state
    state = state.transpose(2, 3)
    steps, states, updates = linear_attention_steps(
        torch.unsqueeze(queries, 3) * (1 / torch.sqrt(size) if scale == 0 else scale),
        torch.repeat_interleave(keys, group, 2), by_sequences(v, places).transpose(0, 1),
        None if gate is None else torch.exp(gate), rate, state, within)

    if len(steps) == 0:
        output = torch.zeros(sizes + [heads, v.size(2)], dtype=query.dtype, device=query.device)
    else:
        output = by_tokens(torch.squeeze(torch.stack(steps, 1), 3), is_there)
        output = torch.to(torch.reshape(output, sizes + [heads, v.size(2)]), query.dtype)
        state = states[-1]
    is_active = state_update_active is None or state_update_active != 0
    none = torch.zeros([places.size(0), heads, v.size(2)], device=q.device)
    captured = captured_steps(gate, keys, torch.stack([none] + updates, 1)[:, 1:], state_update_capacity, capture_count,
                              is_active, ends[1:] - ends[:-1])
    return output, state.transpose(2, 3), captured


# --- Convolutions with a state ---


# Convolves [batch, channels, …] with a kernel for each channel; `x` has the state in front of it along the last
# dimension. The dimensions between keep their sizes.
def causal_convolution(x: Tensor, weight: Tensor, bias: Optional[Tensor], dilation: int, activation: str) -> Tensor:
    n = x.dim() - 2
    if n > 1:
        pads = [0, 0]
        for i in range(1, n):
            around = weight.size(-1 - i) - 1
            pads += [around // 2, around - around // 2]
        x = torch.pad(x, pads, "constant", 0.0)
    y = torch.convolution(x, weight, bias, [1] * n, [0] * n, [1] * (n - 1) + [dilation], False, [0] * n, x.size(1))
    return silu_where_named(y, activation)


# Makes [batch, channels, positions] of [batch, positions, …].
def channels_before_length(x: Tensor) -> Tensor:
    return torch.flatten(x, 2).transpose(1, 2)


def causal_conv_with_window(input: Tensor, weight: Tensor, bias: Optional[Tensor], past_state: Optional[Tensor],
                           activation: str, channels_last: bool, dilation: int, ndim: int,
                           state_window: int) -> Tuple[Tensor, Tensor]:
    if channels_last:
        assert ndim == 1 and input.dim() >= 3, "channels_last needs an ndim of 1, and 3 dimensions or more"
        x = channels_before_length(input)
    else:
        assert input.dim() == 2 + ndim, "input has {} dimensions, not {}".format(input.dim(), 2 + ndim)
        x = input
    channels, length = x.size(1), x.size(-1)
    assert weight.dim() == x.dim() and weight.size()[:2] == [channels, 1] and weight.size(-1) > 0, (
        "weight of shape {} does not suit {} channels".format(weight.size(), channels))
    kept = (weight.size(-1) - 1) * dilation

    # One state has the sizes of the input, with `kept` in place of the number of positions.
    shape = input.size()
    shape[1 if channels_last else -1] = kept
    past = torch.zeros(shape, dtype=x.dtype, device=x.device)
    if past_state is not None:
        window = shape if state_window == 0 else [state_window] + shape
        assert past_state.size() == window, "past_state has shape {}, not {}".format(past_state.size(), window)
        past = past_state if state_window == 0 else past_state[-1]
    whole = torch.cat([channels_before_length(past) if channels_last else past, x], -1)
    y = x if length == 0 else causal_convolution(whole, weight, bias, dilation, activation)

    states: List[Tensor] = []
    for position in range(max(length - max(state_window, 1), 0), length):
        state = torch.slice(whole, -1, position + 1, position + 1 + kept)
        states.append(torch.reshape(state.transpose(1, 2), shape) if channels_last else state)
    present = window_of_states(past if len(states) == 0 else states[-1], states, state_window)
    return torch.reshape(y.transpose(1, 2), input.size()) if channels_last else y, present


def varlen_causal_conv_with_state(input: Tensor, weight: Tensor, cumulative_sequence_length: Tensor,
                                  bias: Optional[Tensor], initial_state: Tensor, capture_count: Optional[Tensor],
                                  activation: str, dilation: int,
                                  state_update_capacity: int) -> Tuple[Tensor, Tensor, Tensor]:
    assert 0 <= state_update_capacity and state_update_capacity <= 8, "state_update_capacity is not from 0 to 8"
    assert (state_update_capacity > 0) == (capture_count is not None), (
        "capture_count comes with a state_update_capacity")
    assert input.dim() == 2 and weight.dim() == 3 and weight.size()[:2] == [input.size(1), 1] and weight.size(2) > 0, (
        "input of shape {} and weight of shape {} do not go together".format(input.size(), weight.size()))
    places, is_there = places_of_sequences(cumulative_sequence_length, input.size(0))
    lengths = torch.sum(is_there, 1)
    kept = (weight.size(2) - 1) * dilation
    shape = [places.size(0), input.size(1), kept]
    assert initial_state.size() == shape, "initial_state has shape {}, not {}".format(initial_state.size(), shape)
    x = by_sequences(input, places)
    whole = torch.cat([initial_state, x.transpose(1, 2)], 2)
    output = input
    if input.size(0) > 0:
        output = by_tokens(causal_convolution(whole, weight, bias, dilation, activation).transpose(1, 2), is_there)
    last = torch.reshape(lengths, [-1, 1, 1]) + torch.arange(kept, device=input.device)
    final_state = torch.gather(whole, 2, last.expand(shape))
    count = torch.zeros_like(lengths)
    if capture_count is not None:
        assert capture_count.size() == lengths.size(), "capture_count has shape {}, not {}".format(
            capture_count.size(), lengths.size())
        count = torch.minimum(capture_count, lengths)
    is_wanted = torch.arange(state_update_capacity, device=input.device) < torch.unsqueeze(count, 1)
    return output, final_state, first_ones(x, is_wanted)


# --- AttnLSTM ---


# Gives X, after checking that the weights' sizes fit one another.
def checked_layer(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], P: Optional[Tensor], directions: int,
                  hidden_size: Optional[int]) -> Tensor:
    check_weights(W, R, B, P, directions, 4, hidden_size)
    assert X.dim() == 3, "X has {} dimensions, not 3".format(X.dim())
    return X


# Reads a memory by a query, which is the hidden state; its keys come by MW, and steps that are not `open` are left out.
def context_of_memory(h: Tensor, QW: Tensor, V: Tensor, keys: Tensor, M: Tensor, is_open: Optional[Tensor]) -> Tensor:
    query = torch.unsqueeze(torch.matmul(h, QW), 1)
    scores = torch.matmul(torch.tanh(keys + query), V)
    if is_open is not None:
        scores = torch.where(is_open, scores, float("-inf"))
    return torch.squeeze(torch.matmul(torch.unsqueeze(torch.softmax(scores, 1), 1), M), 1)


# Tells which steps of the memory there are, [batch, steps].
def open_memory(M: Tensor, memory_seq_lens: Tensor) -> Tensor:
    assert bool(torch.all((memory_seq_lens > 0) & (memory_seq_lens <= M.size(1)))), (
        "a number in memory_seq_lens is not from 1 to {}".format(M.size(1)))
    return torch.arange(M.size(1), device=M.device) < torch.unsqueeze(memory_seq_lens, 1)


# Computes one direction. The attention, which is an input of the next step along with X, is zero before the first one.
def attn_lstm_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                        initial_h: Tensor, initial_c: Tensor, P: Optional[Tensor], QW: Optional[Tensor],
                        MW: Optional[Tensor], V: Optional[Tensor], M: Optional[Tensor], is_open: Optional[Tensor],
                        AW: Optional[Tensor], activations: List[str], alphas: List[float], betas: List[float],
                        clip: Optional[float], input_forget: bool) -> Tuple[Tensor, Tensor, Tensor]:
    attention_size = 0
    keys: Optional[Tensor] = None
    if M is not None and MW is not None:
        attention_size = M.size(2) if AW is None else AW.size(1)
        keys = torch.matmul(M, MW)
    assert W.size(1) == X.size(2) + attention_size, "W takes {} features, not {} and {}".format(
        W.size(1), X.size(2), attention_size)
    attention = torch.zeros([X.size(1), attention_size], dtype=X.dtype, device=X.device)
    h, c = initial_h, initial_c
    states: List[Tensor] = [h]
    for step in range(X.size(0)):
        x = torch.unsqueeze(torch.cat([X[step], attention], 1), 0)
        of_step = None if within is None else within[step:step + 1]
        _, h, c = lstm_direction(x, W, R, B, of_step, h, c, P, activations, alphas, betas, clip, input_forget)
        if M is not None and QW is not None and V is not None and keys is not None:
            context = context_of_memory(h, QW, V, keys, M, is_open)
            new = context if AW is None else torch.matmul(torch.cat([h, context], 1), AW)
            attention = kept_past_end(new, attention, step, within)
        states.append(h)
    return states_over_time(states, within), h, c


# Repeats Y of a direction of which only the first step was computed for as many steps as X has.
def of_each_step(Y: Tensor, X: Tensor) -> Tensor:
    return Y.expand([X.size(0)] + Y.size()[1:])


def attn_lstm_direction_of_sizes(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                                 initial_h: Tensor, initial_c: Tensor, P: Optional[Tensor], QW: Optional[Tensor],
                                 MW: Optional[Tensor], V: Optional[Tensor], M: Optional[Tensor],
                                 is_open: Optional[Tensor], AW: Optional[Tensor], activations: List[str],
                                 alphas: List[float], betas: List[float], clip: Optional[float],
                                 input_forget: bool) -> Tuple[Tensor, Tensor, Tensor]:
    Y, h, c = attn_lstm_direction(X[:1], W, R, B, part(within, 0, 1), initial_h, initial_c, P, QW, MW, V, M, is_open,
                                  AW, activations, alphas, betas, clip, input_forget)
    return of_each_step(Y, X), h, c
