# DecodeImage, ImageDecoder, Inverse, MaskedFill, NegPos, SegmentExtraction, SegmentSum, StftNorm, StringEqual,
# StringMapping, StringToVector, VectorToString of onnxruntime-extensions. A string is its id, and equal strings have
# equal ids.


def decode_image(encoded: Tensor, color_space: str) -> Tensor:
    order = color_space.upper()
    assert order == "BGR" or order == "RGB", "there is no color_space {}".format(color_space)
    return torch.ops.onnx_torch.image_decoder(torch.flatten(encoded), order)


# Inverts a matrix; the inverse of a singular one has infinite elements.
def inverse_of_matrix(input: Tensor) -> Tensor:
    assert input.dim() == 2, "Inverse takes a matrix, not {} dimensions".format(input.dim())
    inverse, _ = torch.linalg_inv_ex(input, check_errors=False)
    return inverse


# Gives only the elements that are not masked out, as a shorter vector.
def masked_fill_of_texts(value: Tensor, mask: Tensor) -> Tensor:
    assert value.dim() <= 1 and value.size() == mask.size(), "value and mask must be vectors of one size"
    return torch.masked_select(value, mask)


def neg_pos(input: Tensor) -> Tuple[Tensor, Tensor]:
    above = input > 0
    return torch.masked_fill(input, above, 0), torch.masked_fill(input, torch.logical_not(above), 0)


# Finds the runs of equal numbers other than 0: where they begin and end, and the number that each has.
def segment_extraction(input: Tensor) -> Tuple[Tensor, Tensor]:
    assert input.dim() == 1 or (input.dim() == 2 and input.size(0) == 1), "the input must be one row"
    x = torch.flatten(input)
    inner = torch.slice(x, 0, 1) != torch.slice(x, 0, 0, -1)
    edge = torch.ones([min(x.size(0), 1)], dtype=torch.bool, device=x.device)
    begins = torch.squeeze(torch.nonzero(torch.logical_and(torch.cat([edge, inner]), x != 0)), 1)
    ends = torch.squeeze(torch.nonzero(torch.logical_and(torch.cat([inner, edge]), x != 0)), 1) + 1
    return torch.stack([begins, ends], 1), torch.index_select(x, 0, begins)


def segment_sum(data: Tensor, segment_ids: Tensor) -> Tensor:
    assert segment_ids.dim() == 1 and data.dim() > 0, "segment_ids must be a vector, and data more than a number"
    assert segment_ids.size(0) == data.size(0), "there must be an id for each row"
    rows = 0
    if segment_ids.size(0) > 0:
        steps = torch.slice(segment_ids, 0, 1) - torch.slice(segment_ids, 0, 0, -1)
        fits = torch.all(torch.logical_and(steps >= 0, steps <= 1))
        assert bool(fits) and int(segment_ids[0]) == 0, "segment_ids must begin with 0 and increase by one at most"
        rows = int(segment_ids[-1]) + 1
    sums = torch.zeros([rows] + data.size()[1:], dtype=data.dtype, device=data.device)
    return torch.index_add(sums, 0, segment_ids, data)


def string_equal(x: Tensor, y: Tensor) -> Tensor:
    return x == y


# Maps each text that is a key to its value; others stay as they are.
def string_mapping(input: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    places = torch.ops.onnx_torch.find_keys(input, keys)
    return torch.where(places < 0, input, torch.take(values, places))


# Maps texts to vectors; the last of the vectors is for unknown texts.
def string_to_vector(text: Tensor, keys: Tensor, numbers: Tensor, length: int) -> Tensor:
    places = torch.remainder(torch.ops.onnx_torch.find_keys(text, keys), keys.size(0) + 1)
    vectors = torch.reshape(numbers, [keys.size(0) + 1, length])
    return torch.reshape(torch.index_select(vectors, 0, torch.flatten(places)), text.size() + [length])


# Maps vectors to texts; the last of the texts is for unknown vectors. Where the length is 1, plain numbers are vectors.
def vector_to_string(token_ids: Tensor, numbers: Tensor, length: int, texts: Tensor) -> Tensor:
    if length == 1 and (token_ids.dim() < 2 or token_ids.size(-1) != 1):
        token_ids = torch.unsqueeze(token_ids, -1)
    assert token_ids.size(-1) == length, "the vectors must be of length {}, not {}".format(length, token_ids.size(-1))
    rows = torch.reshape(token_ids, [-1, length])
    keys = torch.reshape(numbers, [-1, length])
    same = torch.ones([rows.size(0), keys.size(0)], dtype=torch.bool, device=rows.device)
    for i in range(length):
        same = torch.logical_and(same, torch.unsqueeze(rows[:, i], 1) == keys[:, i])
    unknown = torch.logical_not(torch.any(same, 1, True))
    places = torch.argmax(torch.cat([same, unknown], 1).to(torch.uint8), 1)
    return torch.reshape(torch.take(texts, places), token_ids.size()[:-1])


# Computes the power of each frequency (1, frequency, frame) of windows of a sound, the first of which is centred on the
# first sample. Zeros lie around the sound.
def stft_norm(pcm: Tensor, n_fft: int, hop_length: int, window: Tensor, frame_size: int, onesided: bool) -> Tensor:
    assert pcm.dim() >= 2 and pcm.size(1) == pcm.numel(), "pcm_wave must be one row of samples"
    assert frame_size == n_fft, "frame_size must be n_fft"
    length = window.numel()
    assert length > 0 and length <= n_fft, "the window must have 1 to n_fft elements"
    assert hop_length > 0, "hop_length must be more than 0"
    before = length // 2
    sound = torch.constant_pad_nd(torch.reshape(pcm, [1, -1]), [before, length - before])
    frames = torch.unfold(sound, 1, length, hop_length) * torch.flatten(window)
    if onesided:
        spectrum = torch.fft_rfft(frames, n_fft)
    else:
        spectrum = torch.fft_fft(frames, n_fft)
    parts = torch.view_as_real(spectrum)
    return torch.transpose(torch.sum(parts * parts, [-1]), 1, 2)
