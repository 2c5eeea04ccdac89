# DFT, STFT and MelWeightMatrix, in double precision.


# Makes a signal of its real and imaginary parts, which are the last dimension, of size 1 (real) or 2. The result has
# lost that dimension.
def signal_of(x: Tensor) -> Tensor:
    x = torch.to(x, torch.float64)
    if x.size(-1) == 1:
        return torch.squeeze(x, -1)
    return torch.view_as_complex(torch.contiguous(x))


# Gives the parts of a spectrum; ATen gives the inverse transform of a real signal as a conjugate view.
def parts_of(spectrum: Tensor, dtype: int) -> Tensor:
    return torch.to(torch.view_as_real(torch.resolve_conj(spectrum)), dtype)


def dft(input: Tensor, dft_length: Optional[int], axis: Optional[int], inverse: bool, onesided: bool) -> Tensor:
    dim = wrapped(-2 if axis is None else axis, input.dim())
    signal = signal_of(input)
    if onesided and inverse:
        return torch.to(torch.unsqueeze(torch.fft_irfft(signal, dft_length, dim), -1), input.dtype)
    if onesided:
        assert input.size(-1) == 1, "a one-sided transform takes real input"
        spectrum = torch.fft_rfft(signal, dft_length, dim)
    elif inverse:
        spectrum = torch.fft_ifft(signal, dft_length, dim)
    else:
        spectrum = torch.fft_fft(signal, dft_length, dim)
    return parts_of(spectrum, input.dtype)


def stft(signal: Tensor, frame_step: int, window: Optional[Tensor], frame_length: Optional[int],
         onesided: bool) -> Tensor:
    length = signal.size(1)
    if frame_length is not None:
        length = frame_length
    elif window is not None:
        length = window.size(0)
    frames = torch.unfold(signal_of(signal), 1, length, frame_step)
    if window is not None:
        assert window.size(0) == length, "the window is not as long as a frame"
        frames = frames * window
    if onesided:
        assert signal.size(-1) == 1, "a one-sided transform takes real input"
        spectrum = torch.fft_rfft(frames)
    else:
        spectrum = torch.fft_fft(frames)
    return parts_of(spectrum, signal.dtype)


def mel(hertz: float) -> float:
    return 2595 * torch.log1p(hertz / 700) / torch.log(10.0)


# Computes the matrix: column m rises from 0 at bin `low` to 1 at `center`, and falls to 0 at `high`.
def mel_weight_matrix(num_mel_bins: int, dft_length: int, sample_rate: int, lower_edge_hertz: float,
                      upper_edge_hertz: float, device: Device) -> Tensor:
    steps = num_mel_bins + 2
    lowest = mel(lower_edge_hertz)
    mels = torch.arange(steps, dtype=torch.float64, device=device) * ((mel(upper_edge_hertz) - lowest) / steps) + lowest
    hertz = 700 * torch.expm1(mels / 2595 * torch.log(10.0))
    edges = torch.floor_divide((dft_length + 1) * hertz, sample_rate)
    low = edges[:num_mel_bins]
    center = edges[1:num_mel_bins + 1]
    high = edges[2:]
    bins = torch.unsqueeze(torch.arange(dft_length // 2 + 1, dtype=torch.float64, device=device), 1)
    rising = torch.where(center == low, 1.0, (bins - low) / (center - low))
    falling = (high - bins) / (high - center)
    weights = torch.where(bins <= center, rising, falling)
    return torch.where(torch.logical_and(bins >= low, torch.logical_or(bins < high, bins == center)), weights, 0.0)
