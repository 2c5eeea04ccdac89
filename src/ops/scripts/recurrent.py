# RNN, GRU, LSTM: one direction of a layer, step by step, for what ATen's own layers do not cover. The activations and
# their alphas and betas come in the spec's order (f, g, h); W, R and B hold the gates one after another.


def initial_state(X: Tensor, R: Tensor) -> Tensor:
    return torch.zeros([R.size(0), X.size(1), R.size(2)], dtype=X.dtype, device=X.device)


# ATen's LSTM does not look whether sizes fit, and reads what lies behind.
def checked_input(X: Tensor, W: Tensor) -> Tensor:
    assert X.size(2) == W.size(2), "X has {} features, W takes {}".format(X.size(2), W.size(2))
    return X


# Nothing but the state: expand is for shapes that are known before the model runs, when nothing is asserted yet.
def checked_state(state: Tensor, X: Tensor, R: Tensor) -> Tensor:
    sizes = [R.size(0), X.size(1), R.size(2)]
    assert state.size() == sizes, "an initial state has shape {}, not {}".format(state.size(), sizes)
    return state.expand(sizes)


def time_step(step: int, steps: int, reverse: bool) -> int:
    return steps - 1 - step if reverse else step


# Part of the bias B, which holds the gates' Wb, then their Rb.
def bias(B: Optional[Tensor], first: int, last: int) -> Optional[Tensor]:
    if B is None:
        return None
    return B[first:last]


# What of all gates does not depend on the state, for all steps at once: [seq_length, batch_size, gates * hidden_size].
def input_gates(X: Tensor, W: Tensor, B: Optional[Tensor]) -> Tensor:
    if B is None:
        return torch.linear(X, W)
    return torch.linear(X, W, B[:W.size(0)] + B[W.size(0):])


# Past the end of its sequence, a batch entry keeps its state.
def kept_past_end(state: Tensor, previous: Tensor, t: int, sequence_lens: Optional[Tensor]) -> Tensor:
    if sequence_lens is None:
        return state
    return torch.where(torch.unsqueeze(sequence_lens > t, 1), state, previous)


# Y of the states in the order they were computed; zero past the end of a sequence.
def states_over_time(states: List[Tensor], initial: Tensor, reverse: bool, sequence_lens: Optional[Tensor]) -> Tensor:
    if len(states) == 0:
        return torch.unsqueeze(initial, 0)[:0]
    if reverse:
        states.reverse()
    Y = torch.stack(states)
    if sequence_lens is None:
        return Y
    t = torch.arange(Y.size(0), device=Y.device)
    past_end = torch.unsqueeze(t, 1) >= sequence_lens
    return torch.masked_fill(Y, torch.unsqueeze(past_end, 2), 0)


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


def rnn_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], sequence_lens: Optional[Tensor],
                  initial_h: Tensor, reverse: bool, activations: List[str], alphas: List[float], betas: List[float],
                  clip: Optional[float]) -> Tuple[Tensor, Tensor]:
    gates = input_gates(X, W, B)
    h = initial_h
    states: List[Tensor] = []
    for step in range(X.size(0)):
        t = time_step(step, X.size(0), reverse)
        new_h = activate(gates[t] + torch.linear(h, R), activations[0], alphas[0], betas[0], clip)
        h = kept_past_end(new_h, h, t, sequence_lens)
        states.append(h)
    return states_over_time(states, h, reverse, sequence_lens), h


def gru_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], sequence_lens: Optional[Tensor],
                  initial_h: Tensor, reverse: bool, activations: List[str], alphas: List[float], betas: List[float],
                  clip: Optional[float], linear_before_reset: bool) -> Tuple[Tensor, Tensor]:
    hidden_size = R.size(1)
    zr = 2 * hidden_size
    zrh = 3 * hidden_size
    gates = torch.linear(X, W, bias(B, 0, zrh))
    h = initial_h
    states: List[Tensor] = []
    for step in range(X.size(0)):
        t = time_step(step, X.size(0), reverse)
        update_reset = gates[t, :, :zr] + torch.linear(h, R[:zr], bias(B, zrh, zrh + zr))
        z, r = torch.chunk(activate(update_reset, activations[0], alphas[0], betas[0], clip), 2, 1)
        Rb_h = bias(B, zrh + zr, 2 * zrh)
        if linear_before_reset:
            hidden = r * torch.linear(h, R[zr:], Rb_h)
        else:
            hidden = torch.linear(r * h, R[zr:], Rb_h)
        hidden = activate(gates[t, :, zr:] + hidden, activations[1], alphas[1], betas[1], clip)
        h = kept_past_end((1 - z) * hidden + z * h, h, t, sequence_lens)
        states.append(h)
    return states_over_time(states, h, reverse, sequence_lens), h


def peephole(gate: Tensor, P: Optional[Tensor], k: int, c: Tensor) -> Tensor:
    if P is None:
        return gate
    return gate + P[k * c.size(1):(k + 1) * c.size(1)] * c


def lstm_direction(X: Tensor, W: Tensor, R: Tensor, B: Optional[Tensor], sequence_lens: Optional[Tensor],
                   initial_h: Tensor, initial_c: Tensor, P: Optional[Tensor], reverse: bool, activations: List[str],
                   alphas: List[float], betas: List[float], clip: Optional[float],
                   input_forget: bool) -> Tuple[Tensor, Tensor, Tensor]:
    gates = input_gates(X, W, B)
    h = initial_h
    c = initial_c
    states: List[Tensor] = []
    for step in range(X.size(0)):
        t = time_step(step, X.size(0), reverse)
        i, o, f, g = torch.chunk(gates[t] + torch.linear(h, R), 4, 1)
        i = activate(peephole(i, P, 0, c), activations[0], alphas[0], betas[0], clip)
        if input_forget:
            f = 1 - i
        else:
            f = activate(peephole(f, P, 2, c), activations[0], alphas[0], betas[0], clip)
        g = activate(g, activations[1], alphas[1], betas[1], clip)
        new_c = f * c + i * g
        o = activate(peephole(o, P, 1, new_c), activations[0], alphas[0], betas[0], clip)
        new_h = o * activate(new_c, activations[2], alphas[2], betas[2], clip)
        h = kept_past_end(new_h, h, t, sequence_lens)
        c = kept_past_end(new_c, c, t, sequence_lens)
        states.append(h)
    return states_over_time(states, h, reverse, sequence_lens), h, c
