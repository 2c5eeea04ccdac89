# Layouts of images: channels last.


def channels_first_order(rank: int) -> List[int]:
    assert rank >= 2, "an image has a batch and channels"
    return [0, rank - 1] + list(range(1, rank - 1))


def channels_last_order(rank: int) -> List[int]:
    assert rank >= 2, "an image has a batch and channels"
    return [0] + list(range(2, rank)) + [1]
