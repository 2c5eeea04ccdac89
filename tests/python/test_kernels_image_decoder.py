"""ImageDecoder, against Pillow on files that it writes, and against files put together by hand or broken on purpose."""

import io
import warnings

import numpy as np
import pytest
import torch
from onnx.backend.test.case.node import _image_decoder_data
from PIL import Image

from kernel_support import kernels
from models import run_op

WIDTH, HEIGHT = 37, 21


def decode(file, pixel_format="RGB"):
    return kernels.image_decoder(torch.tensor(list(file), dtype=torch.uint8), pixel_format).numpy()


def picture(mode):
    """Makes a picture that is smooth in parts and noisy in others."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    rgb = np.stack([x * 6, y * 11, (x + y) * 4], axis=2) % 256
    rgb[5:12, 8:20] = random.integers(0, 256, (7, 12, 3))
    image = Image.fromarray(rgb.astype(np.uint8))
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(random.integers(0, 256, (HEIGHT, WIDTH), np.uint8)))
    if mode == "I;16":
        return Image.fromarray(random.integers(0, 1 << 16, (HEIGHT, WIDTH), np.uint16))
    return image.quantize(50) if mode == "P" else image.convert(mode)


def write(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def pillow(file):
    """Decodes a file with Pillow: alpha is dropped, not composed; of 16 bits the upper 8 are taken."""
    image = Image.open(io.BytesIO(file))
    if image.mode == "I;16":
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    return np.asarray(image.convert("RGB"))


WRITTEN = [
    *(("BMP", mode, {}) for mode in ("1", "L", "P", "RGB")),
    *(("JPEG", mode, options) for mode in ("L", "RGB", "CMYK") for options in ({}, {"quality": 95, "subsampling": 0})),
    ("JPEG", "RGB", {"progressive": True, "subsampling": 1}),
    ("JPEG", "RGB", {"restart_marker_blocks": 2}),
    *(("JPEG2000", mode, {"irreversible": i}) for mode in ("L", "LA", "RGB", "RGBA") for i in (False, True)),
    ("JPEG2000", "RGB", {"no_jp2": True}),
    ("JPEG2000", "RGB", {"tile_size": (16, 16)}),
    *(("PNG", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    ("PNG", "L", {"bits": 4}),
    *(("PPM", mode, {}) for mode in ("1", "L", "RGB")),
    *(("TIFF", mode, {}) for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16")),
    *(("TIFF", "RGB", {"compression": c}) for c in ("tiff_lzw", "tiff_adobe_deflate", "packbits")),
    ("TIFF", "RGB", {"big_tiff": True}),
    ("WEBP", "RGB", {}),
    ("WEBP", "RGB", {"lossless": True}),
    ("WEBP", "RGBA", {"lossless": True, "exact": True}),
]


@pytest.mark.parametrize("format, mode, options", WRITTEN, ids=lambda v: str(v))
def test_matches_pillow(format, mode, options):
    file = write(picture(mode), format, **options)
    expected = pillow(file)
    rgb = decode(file)
    np.testing.assert_array_equal(rgb, expected, strict=True)
    np.testing.assert_array_equal(decode(file, "BGR"), expected[:, :, ::-1])
    gray = np.asarray(Image.fromarray(expected).convert("L"))[:, :, None]
    np.testing.assert_array_equal(decode(file, "Grayscale"), gray, strict=True)


@pytest.mark.parametrize("name", [n for n in dir(_image_decoder_data) if n.startswith("image_decoder_decode")])
def test_official_data(name):
    """The streams frozen in onnx, which its own tests use where Pillow is not installed, are decoded."""
    data = getattr(_image_decoder_data, name)
    pixel_format = {"bgr": "BGR", "rgb": "RGB", "grayscale": "Grayscale"}[name.rpartition("_")[2]]
    np.testing.assert_array_equal(decode(data.data.tobytes(), pixel_format), data.output, strict=True)


# ---- Files that Pillow does not write


def le(*values, size=2):
    return b"".join((v & ((1 << 8 * size) - 1)).to_bytes(size, "little") for v in values)


def bmp(width, height, bits, pixels, *, compression=0, palette=b"", masks=b"", colours=0):
    header = le(40, width, height, size=4) + le(1, bits) + le(compression, 0, 0, 0, colours, 0, size=4)
    header += masks + palette
    return b"BM" + le(0, 0, 14 + len(header), size=4) + header + pixels


GRAY_PALETTE = b"".join(bytes([v, v, v, 0]) for v in range(0, 256, 17))


def plane(rgb, channel=0):
    return rgb[:, :, channel].tolist()


def test_bmp_of_16_bits():
    row = le(0b0_11111_00000_01010, 0b0_00001_11111_00000)
    image = decode(bmp(2, 1, 16, row))
    assert image.tolist() == [[[255, 0, 82], [8, 255, 0]]]
    masks = le(0xF800, 0x07E0, 0x001F, size=4)
    image = decode(bmp(2, 1, 16, le(0b11111_000000_00000, 0b00000_111111_11111), compression=3, masks=masks))
    assert image.tolist() == [[[255, 0, 0], [0, 255, 255]]]


def test_bmp_of_32_bits():
    assert decode(bmp(1, 1, 32, bytes([1, 2, 3, 4]))).tolist() == [[[3, 2, 1]]]
    masks = le(0xFF, 0xFF00, 0xFF0000, size=4)
    assert decode(bmp(1, 1, 32, bytes([1, 2, 3, 4]), compression=3, masks=masks)).tolist() == [[[1, 2, 3]]]


def test_bmp_of_2_and_4_bits_and_top_down():
    rows = bytes([0x12, 0x30, 0, 0, 0x45, 0x60, 0, 0])
    assert plane(decode(bmp(3, 2, 4, rows, palette=GRAY_PALETTE))) == [[68, 85, 102], [17, 34, 51]]
    assert plane(decode(bmp(3, -2, 4, rows, palette=GRAY_PALETTE))) == [[17, 34, 51], [68, 85, 102]]
    rows = bytes([0b00_01_10_11, 0, 0, 0])
    assert plane(decode(bmp(4, 1, 2, rows, palette=GRAY_PALETTE[:16]))) == [[0, 17, 34, 51]]


def test_bmp_with_runs():
    runs = bytes([3, 1, 0, 0, 0, 3, 4, 5, 6, 0, 0, 0, 0, 2, 1, 1, 1, 7, 0, 1])
    image = decode(bmp(3, 4, 8, runs, compression=1, palette=GRAY_PALETTE, colours=16))
    assert plane(image) == [[0, 119, 0], [0, 0, 0], [68, 85, 102], [17, 17, 17]]
    runs = bytes([3, 0x12, 0, 0, 0, 3, 0x45, 0x60, 0, 1])
    image = decode(bmp(3, 2, 4, runs, compression=2, palette=GRAY_PALETTE))
    assert plane(image) == [[68, 85, 102], [17, 34, 17]]


def test_bmp_of_os2():
    header = le(12, size=4) + le(2, 1, 1, 24)
    file = b"BM" + le(0, 0, 14 + len(header), size=4) + header + bytes([1, 2, 3, 4, 5, 6, 0, 0])
    assert decode(file).tolist() == [[[3, 2, 1], [6, 5, 4]]]


@pytest.mark.parametrize(
    "file, expected",
    [
        (b"P1 # bits\n3 2\n010\n1 0 1", [[255, 0, 255], [0, 255, 0]]),
        (b"P2\n3 1\n# the largest\n15\n0 3 15", [[0, 51, 255]]),
        (b"P5 2 1 65535\n\x12\x34\xff\xff", [[18, 255]]),
        (b"P5\n2\n1\n3\n\x01\x02", [[85, 170]]),
        (b"P4 9 2\n\x80\x80\x00\x7f", [[0, *[255] * 7, 0], [255] * 9]),
    ],
)
def test_pnm_in_gray(file, expected):
    image = decode(file)
    assert plane(image) == expected
    assert (image == image[:, :, :1]).all()


def test_pnm_in_colour():
    assert decode(b"P3 2 1 255 1 2 3 4 5 6").tolist() == [[[1, 2, 3], [4, 5, 6]]]
    assert decode(b"P6 1 1 255\n" + bytes([7, 8, 9])).tolist() == [[[7, 8, 9]]]


# ---- Broken files


@pytest.mark.parametrize(
    "file, reason",
    [
        (b"", "the format is none of"),
        (b"GIF89a", "the format is none of"),
        (b"BM", "truncated"),
        (bmp(1 << 20, 1 << 20, 24, b""), "too large"),
        (bmp(-1, 1, 24, b""), "of size"),
        (bmp(2, 2, 24, b"1234"), "truncated"),
        (bmp(2, 2, 7, b"1234"), "7 bits a pixel"),
        (bmp(2, 2, 24, b"1234", compression=4), "compression 4"),
        (bmp(2, 1, 8, bytes([3, 0, 0, 1]), compression=1, palette=bytes(1024)), "leaves the image"),
        (b"P6 1 1 255\n12", "truncated"),
        (b"P6 99999999999 1 255\n12", "number is too large"),
        (b"P6 1000000 1000000 255\n", "image is too large"),
        (b"P5 0 1 255\n", "of size"),
        (b"P5 x", "number is missing"),
        (b"P5 1 1 0\n", "largest value is 0"),
    ],
)
def test_what_cannot_be_decoded_gives_an_empty_image(file, reason, caplog):
    (image,) = run_op("ImageDecoder", [np.frombuffer(file, np.uint8)], pixel_format="RGB")
    assert image.shape == (0, 0, 3)
    (warning,) = caplog.records
    assert reason in warning.getMessage()


FORMATS = ["BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP"]
ONE_OF_EACH = {format: write(picture("RGB"), format) for format in FORMATS}


@pytest.mark.parametrize("format", ONE_OF_EACH)
def test_truncated_files(format):
    file = ONE_OF_EACH[format]
    whole = decode(file)
    # PNG ends with a checksum and an empty chunk, JPEG 2000 with a mark: nothing that an image would miss.
    spare = {"PNG": 20, "JPEG2000": 2}.get(format, 0)
    for size in {*range(0, len(file), max(1, len(file) // 100)), len(file) - 1}:
        with warnings.catch_warnings(record=True):
            image = decode(file[:size])
        assert image.size == 0 or (size >= len(file) - spare and np.array_equal(image, whole)), size


@pytest.mark.filterwarnings("ignore:ImageDecoder")
@pytest.mark.parametrize("format", [*ONE_OF_EACH, "progressive JPEG", "interlaced PNG", "LZW TIFF"])
def test_damaged_files_do_no_harm(format):
    special = {
        "progressive JPEG": lambda: write(picture("CMYK"), "JPEG", progressive=True),
        "interlaced PNG": lambda: write(picture("P"), "PNG", bits=8),
        "LZW TIFF": lambda: write(picture("RGBA"), "TIFF", compression="tiff_lzw"),
    }
    file = special[format]() if format in special else ONE_OF_EACH[format]
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = np.frombuffer(file, np.uint8).copy()
        # Headers are hit more often than their share.
        places = random.integers(0, random.choice([64, len(file)]), random.integers(1, 6))
        damaged[np.minimum(places, len(file) - 1)] = random.integers(0, 256, places.size)
        image = decode(damaged.tobytes())
        assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3


def test_errors_of_the_caller():
    with pytest.raises(RuntimeError, match="no pixel_format"):
        decode(b"P5 1 1 255\n1", "CMYK")
    with pytest.raises(RuntimeError, match="vector of uint8"):
        kernels.image_decoder(torch.zeros(3), "RGB")


def test_non_contiguous_stream():
    file = torch.tensor(list(b"P5 1 1 255\n\x07"), dtype=torch.uint8)
    assert kernels.image_decoder(torch.stack([file, file], 1)[:, 0], "Grayscale").tolist() == [[[7]]]
