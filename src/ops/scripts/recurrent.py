# RNN, GRU, LSTM: one direction of a layer, step by step, where ATen's own layers do not cover it. X comes in the order
# of the steps, and so does `within`, which tells where the sequences end. The activations and their alphas and betas
# come in the spec's order (f, g, h); W, R and B hold the gates one after another.


def initial_state(X: Tensor, R: Tensor) -> Tensor:
    return torch.zeros([R.size(0), X.size(1), R.size(2)], dtype=X.dtype, device=X.device)


# Gives X, after checking that the weights' sizes fit it and one another. ATen's layers take that for granted, and read
# beyond their ends.
def checked_input(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], P: Optional[Tensor], directions: int,
                  gates: int, hidden_size: Optional[int]) -> Tensor:
    check_weights(W, R, B, P, directions, gates, hidden_size)
    assert X.dim() == 3 and X.size(2) == W.size(2), "X has shape {}, W takes {} features".format(X.size(), W.size(2))
    return X


def check_weights(W: Tensor, R: Tensor, B: Optional[Tensor], P: Optional[Tensor], directions: int, gates: int,
                  hidden_size: Optional[int]):
    hidden = R.size(-1)
    assert hidden_size is None or hidden_size == hidden, "R is of {} units, not of hidden_size".format(hidden)
    of_gates = gates * hidden
    assert R.size() == [directions, of_gates, hidden], "R has shape {}, not {}".format(
        R.size(), [directions, of_gates, hidden])
    assert W.dim() == 3 and W.size()[:2] == [directions, of_gates], "W has shape {}, not [{}, {}, ...]".format(
        W.size(), directions, of_gates)
    if B is not None:
        assert B.size() == [directions, 2 * of_gates], "B has shape {}, not {}".format(
            B.size(), [directions, 2 * of_gates])
    if P is not None:
        assert P.size() == [directions, 3 * hidden], "P has shape {}, not {}".format(P.size(), [directions, 3 * hidden])


# Gives the state as it is: expand is for shapes that are known before the model runs, when nothing is asserted yet.
def checked_state(state: Tensor, X: Tensor, R: Tensor) -> Tensor:
    sizes = [R.size(0), X.size(1), R.size(2)]
    assert state.size() == sizes, "an initial state has shape {}, not {}".format(state.size(), sizes)
    return state.expand(sizes)


# Tells whether a step is one of its sequence's: [seq_length, batch_size, 1].
def within_sequences(X: Tensor, sequence_lens: Tensor) -> Tensor:
    t = torch.arange(X.size(0), device=X.device)
    return torch.unsqueeze(torch.unsqueeze(t, 1) < sequence_lens, 2)


# Gives part of the bias B, which holds the gates' Wb, then their Rb, or of the peepholes P.
def part(of: Optional[Tensor], first: int, last: int) -> Optional[Tensor]:
    if of is None:
        return None
    return of[first:last]


# Gives a state, or where a batch entry is past the end of its sequence, the previous one.
def kept_past_end(state: Tensor, previous: Tensor, step: int, within: Optional[Tensor]) -> Tensor:
    if within is None:
        return state
    return torch.where(within[step], state, previous)


# Stacks the states after the initial one into Y, which is zero past the end of a sequence.
def states_over_time(states: List[Tensor], within: Optional[Tensor]) -> Tensor:
    Y = torch.stack(states)[1:]
    if within is None:
        return Y
    return torch.where(within, Y, 0)


def activate(x: Tensor, name: str, alpha: float, beta: float, clip: Optional[float]) -> Tensor:
    if clip is not None:
        x = torch.clamp(x, -clip, clip)
    if name == "sigmoid":
        return torch.sigmoid(x)
    if name == "tanh":
        return torch.tanh(x)
    if name == "relu":
        return torch.relu(x)
    if name == "affine":
        return x * alpha + beta
    if name == "leakyrelu":
        return torch.leaky_relu(x, alpha)
    if name == "thresholdedrelu":
        return torch.masked_fill(x, x < alpha, 0)
    if name == "scaledtanh":
        return torch.tanh(x * beta) * alpha
    if name == "hardsigmoid":
        return torch.clamp(x * alpha + beta, 0, 1)
    if name == "elu":
        return torch.elu(x, alpha)
    if name == "softsign":
        return x / (torch.abs(x) + 1)
    assert name == "softplus"
    return torch.softplus(x)


# Computes the gates as if each step came after the initial state: they are as large as those of the steps.
def gates_of_sizes(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], initial_h: Tensor) -> Tensor:
    size = R.size(0)
    return torch.linear(X, W, part(B, 0, size)) + torch.linear(initial_h, R, part(B, size, 2 * size))


def rnn_states(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
               initial_h: Tensor, activations: List[str], alphas: List[float], betas: List[float],
               clip: Optional[float]) -> Tuple[Tensor, Tensor]:
    size = R.size(0)
    gates = torch.linear(X, W, part(B, 0, size))
    Rb = part(B, size, 2 * size)
    h = initial_h
    states = [h]
    for step in range(X.size(0)):
        new_h = activate(gates[step] + torch.linear(h, R, Rb), activations[0], alphas[0], betas[0], clip)
        h = kept_past_end(new_h, h, step, within)
        states.append(h)
    return states_over_time(states, within), h


@kept
def rnn_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                  initial_h: Tensor, activations: List[str], alphas: List[float], betas: List[float],
                  clip: Optional[float]) -> Tuple[Tensor, Tensor]:
    return rnn_states(X, W, R, B, within, initial_h, activations, alphas, betas, clip)


def rnn_direction_of_sizes(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                           initial_h: Tensor, activations: List[str], alphas: List[float], betas: List[float],
                           clip: Optional[float]) -> Tuple[Tensor, Tensor]:
    return gates_of_sizes(X, W, R, B, initial_h), initial_h


def gru_states(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
               initial_h: Tensor, activations: List[str], alphas: List[float], betas: List[float],
               clip: Optional[float], linear_before_reset: bool) -> Tuple[Tensor, Tensor]:
    hidden_size = R.size(1)
    zr = 2 * hidden_size
    zrh = 3 * hidden_size
    gates = torch.linear(X, W, part(B, 0, zrh))
    gates_zr = torch.narrow(gates, 2, 0, zr)
    gates_h = torch.narrow(gates, 2, zr, hidden_size)
    R_zr, Rb_zr = R[:zr], part(B, zrh, zrh + zr)
    R_h, Rb_h = R[zr:], part(B, zrh + zr, 2 * zrh)
    h = initial_h
    states = [h]
    for step in range(X.size(0)):
        update_reset = activate(gates_zr[step] + torch.linear(h, R_zr, Rb_zr), activations[0], alphas[0], betas[0], clip)
        z, r = torch.chunk(update_reset, 2, 1)
        if linear_before_reset:
            hidden = r * torch.linear(h, R_h, Rb_h)
        else:
            hidden = torch.linear(r * h, R_h, Rb_h)
        hidden = activate(gates_h[step] + hidden, activations[1], alphas[1], betas[1], clip)
        h = kept_past_end((1 - z) * hidden + z * h, h, step, within)
        states.append(h)
    return states_over_time(states, within), h


@kept
def gru_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                  initial_h: Tensor, activations: List[str], alphas: List[float], betas: List[float],
                  clip: Optional[float], linear_before_reset: bool) -> Tuple[Tensor, Tensor]:
    return gru_states(X, W, R, B, within, initial_h, activations, alphas, betas, clip, linear_before_reset)


def gru_direction_of_sizes(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                           initial_h: Tensor, activations: List[str], alphas: List[float], betas: List[float],
                           clip: Optional[float], linear_before_reset: bool) -> Tuple[Tensor, Tensor]:
    z, r, hidden = torch.chunk(gates_of_sizes(X, W, R, B, initial_h), 3, 2)
    return hidden + z * (r * initial_h), initial_h


def peep(gate: Tensor, peephole: Optional[Tensor], c: Tensor) -> Tensor:
    if peephole is None:
        return gate
    return gate + peephole * c


# Computes the gates' part of the state; where R is quantized, with the state in uint8.
def gates_of_state(h: Tensor, step: int, R: Tensor, R_scale: Optional[Tensor], Rb: Optional[Tensor],
                   within: Optional[Tensor]) -> Tensor:
    if R_scale is None:
        return torch.linear(h, R, Rb)
    return dynamic_product(counted_state(h, step, within), R, R_scale)


# Computes the states that follow from the gates' part of X.
def lstm_states(gates: Tensor, R: Tensor, R_scale: Optional[Tensor], Rb: Optional[Tensor], within: Optional[Tensor],
                initial_h: Tensor, initial_c: Tensor, P: Optional[Tensor], activations: List[str],
                alphas: List[float], betas: List[float], clip: Optional[float],
                input_forget: bool) -> Tuple[Tensor, Tensor, Tensor]:
    hidden_size = initial_h.size(1)
    P_i = part(P, 0, hidden_size)
    P_o = part(P, hidden_size, 2 * hidden_size)
    P_f = part(P, 2 * hidden_size, 3 * hidden_size)
    h = initial_h
    c = initial_c
    states = [h]
    for step in range(gates.size(0)):
        i, o, f, g = torch.chunk(gates[step] + gates_of_state(h, step, R, R_scale, Rb, within), 4, 1)
        i = activate(peep(i, P_i, c), activations[0], alphas[0], betas[0], clip)
        if input_forget:
            f = 1 - i
        else:
            f = activate(peep(f, P_f, c), activations[0], alphas[0], betas[0], clip)
        g = activate(g, activations[1], alphas[1], betas[1], clip)
        new_c = f * c + i * g
        o = activate(peep(o, P_o, new_c), activations[0], alphas[0], betas[0], clip)
        new_h = o * activate(new_c, activations[2], alphas[2], betas[2], clip)
        h = kept_past_end(new_h, h, step, within)
        c = kept_past_end(new_c, c, step, within)
        states.append(h)
    return states_over_time(states, within), h, c


@kept
def lstm_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                   initial_h: Tensor, initial_c: Tensor, P: Optional[Tensor], activations: List[str],
                   alphas: List[float], betas: List[float], clip: Optional[float],
                   input_forget: bool) -> Tuple[Tensor, Tensor, Tensor]:
    size = R.size(0)
    gates = torch.linear(X, W, part(B, 0, size))
    return lstm_states(gates, R, None, part(B, size, 2 * size), within, initial_h, initial_c, P, activations,
                       alphas, betas, clip, input_forget)


def lstm_direction_of_sizes(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], within: Optional[Tensor],
                            initial_h: Tensor, initial_c: Tensor, P: Optional[Tensor], activations: List[str],
                            alphas: List[float], betas: List[float], clip: Optional[float],
                            input_forget: bool) -> Tuple[Tensor, Tensor, Tensor]:
    i, o, f, g = torch.chunk(gates_of_sizes(X, W, R, B, initial_h), 4, 2)
    return o * (f * initial_c + i * g), initial_h, initial_c
