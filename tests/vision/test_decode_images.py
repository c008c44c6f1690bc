"""Image decoding: modes, EXIF orientation, size, and errors."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from headwise.errors import UserError
from headwise.vision import decode
from headwise.vision.decode import DamagedImage, compute_crop, decode_image, read_header

ORIENTATION = 0x0112
RED, HALF_RED_OVER_WHITE = [255, 0, 0], [255, 127, 127]


def saved(path, image, **options):
    image.save(path, **options)
    return path


def first(path, **options):
    return decode_image(path, **options)[:, 0, 0].tolist()


def deep(value):
    return Image.fromarray(np.full((2, 2), value, np.uint16))


def palette(**options):
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, *RED])
    image.info.update(options)
    return image


@pytest.mark.parametrize(
    ("name", "image", "expected"),
    [
        ("grey.png", Image.new("L", (2, 2), 7), [7]),
        ("black and white.png", Image.new("1", (2, 2), 1), [255]),
        ("colour.png", Image.new("RGB", (2, 2), (1, 2, 3)), [1, 2, 3]),
        ("palette.png", palette(), RED),
        ("transparent.png", palette(transparency=1), [255, 255, 255]),
        ("alpha.png", Image.new("RGBA", (2, 2), (*RED, 128)), HALF_RED_OVER_WHITE),
        ("grey alpha.png", Image.new("LA", (2, 2), (0, 0)), [255]),
        ("16 bits.png", deep(0x8080), [0x80]),
        ("16 bits.tif", deep(0xFFFF), [255]),
        ("numbers.tif", Image.new("F", (2, 2), 0.2), [51]),
        ("print.tif", Image.new("CMYK", (2, 2), (0, 255, 255, 0)), RED),
        ("portable.pgm", Image.new("L", (2, 2), 9), [9]),
    ],
)
def test_every_mode_becomes_bytes_of_one_or_three_channels(tmp_path, name, image, expected):
    path = saved(tmp_path / name, image)
    assert first(path) == expected
    assert read_header(path).channels == len(expected)
    assert decode_image(path, channels=3).shape == (3, 2, 2)
    assert decode_image(path, channels=1).shape == (1, 2, 2)


def test_the_first_frame_of_an_animation_is_decoded(tmp_path):
    frames = [Image.new("L", (2, 2), grey) for grey in (10, 200)]
    assert first(saved(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:]), channels=1) == [10]


@pytest.fixture
def turned(tmp_path):
    """Stored with 2 rows and 4 columns, its left half white; to be turned by a quarter to the right."""
    image = Image.new("L", (4, 2), 0)
    image.paste(255, (0, 0, 2, 2))
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    return saved(tmp_path / "turned.png", image, exif=exif)


def test_exif_orientation_is_applied(turned):
    pixels = decode_image(turned)[0]
    assert pixels.shape == (4, 2)
    assert (pixels[:2] == 255).all() and (pixels[2:] == 0).all()
    assert (decode_image(Image.open(turned)) == pixels).all()


def test_annotated_sizes_decide_whether_exif_orientation_is_applied(turned):
    assert decode_image(turned, annotated=(2, 4)).shape == (1, 4, 2)
    assert decode_image(turned, annotated=(4, 2)).shape == (1, 2, 4)
    with pytest.raises(DamagedImage, match=r"has 4 x 2 pixels, and its annotation says 3 x 3"):
        decode_image(turned, annotated=(3, 3))


def test_broken_metadata_is_ignored(tmp_path):
    path = saved(tmp_path / "x.jpg", Image.new("RGB", (8, 8), (9, 9, 9)), exif=b"Exif\0\0MM\0*\0\0\xff\xff")
    assert decode_image(path).shape == (3, 8, 8)


def test_resizing_keeps_the_middle_and_the_proportions(tmp_path):
    stripes = np.repeat(np.array([50, 100, 150, 200], np.uint8), 10)[None].repeat(20, 0)  # 20 rows, 40 columns
    path = saved(tmp_path / "x.png", Image.fromarray(stripes))
    square = decode_image(path, (20, 20))[0]
    assert (square == stripes[:, 10:30]).all()
    assert decode_image(path, (10, 20))[0][:, 2].tolist() == [50] * 10
    assert decode_image(path, (40, 20)).shape == (1, 40, 20)


def test_resizing_does_not_alias():
    """Lines that alternate become their mean, whichever of them the new pixels lie on."""
    lines = np.tile(np.array([[0], [255]], np.uint8), (32, 64))
    small = decode_image(Image.fromarray(lines), (9, 9)).astype(int)
    assert abs(small - 127).max() < 8


@pytest.mark.parametrize(("width", "height", "rows", "columns"), [(7, 5, 3, 3), (5, 7, 2, 9), (333, 1000, 224, 224)])
def test_crops_are_inside_the_image_and_in_proportion(width, height, rows, columns):
    left, top, right, bottom = compute_crop(width, height, rows, columns)
    assert 0 <= left < right <= width and 0 <= top < bottom <= height
    assert (right - left) / (bottom - top) == pytest.approx(columns / rows)
    assert left == 0 or top == 0


def bomb(side):
    """A PNG that claims to be large, in a few bytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 50_000])  # Pillow warns of the first, and refuses the second
def test_decompression_bombs_are_refused(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(side))
    with pytest.raises(UserError, match=r"bomb.png: has more than 89,478,485 pixels"):
        decode_image(path)
    with pytest.raises(DamagedImage, match="pixels"):
        read_header(path)


def test_a_file_may_not_have_too_many_bytes(tmp_path, monkeypatch):
    path = saved(tmp_path / "x.png", Image.new("L", (2, 2)))
    monkeypatch.setattr(decode, "MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(DamagedImage, match="more than"):
        decode_image(path)


def test_truncated_files_are_damaged(tmp_path):
    random = np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)
    for name in ("x.png", "x.jpg", "x.webp"):
        content = saved(tmp_path / name, Image.fromarray(random)).read_bytes()
        cut = tmp_path / f"cut-{name}"
        for end in range(0, len(content) - 16, 13):
            cut.write_bytes(content[:end])
            with pytest.raises(DamagedImage, match=f"cut-{name}: "):
                decode_image(cut)


def test_flipped_bits_raise_no_other_error(tmp_path):
    random = np.random.default_rng(2)
    picture = Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8))
    for name in ("x.png", "x.jpg", "x.gif", "x.tif", "x.bmp"):
        content = bytearray(saved(tmp_path / name, picture).read_bytes())
        for position in random.integers(0, min(len(content), 400), 25):
            flipped = content.copy()
            flipped[position] ^= 1 << int(random.integers(8))
            (tmp_path / name).write_bytes(flipped)
            result = decode.try_decoding(decode_image, tmp_path / name, (8, 8), 3)
            assert isinstance(result, DamagedImage) or result.shape == (3, 8, 8)


@pytest.mark.parametrize("name", ["text.png", "folder", "pipe.png", "missing.png"])
def test_errors_name_files_that_are_no_images(tmp_path, name):
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DamagedImage, match=name):
        decode_image(tmp_path / name)


def test_formats_that_run_other_programs_are_not_read(tmp_path):
    path = tmp_path / "x.eps"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 2 2\n%%EOF\n")
    with pytest.raises(DamagedImage, match="PNG or JPEG"):
        decode_image(path)
