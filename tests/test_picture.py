import base64
import io
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from lab.speed.pictures import WAYS, measure
from leftoff.picture import MARKER, PictureError, Pictures, kind_of

WIDTH, HEIGHT = 6, 4
PIXEL_BYTES = 3 * WIDTH * HEIGHT


def file_of(kind: str, mode: str = "RGB", size: tuple[int, int] = (WIDTH, HEIGHT), **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, options.pop("color", "red")).save(file, kind, **options)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_a_file_is_taken_for_what_its_bytes_say(kind: str) -> None:
    picture = Pictures().take(file_of(kind))
    assert (kind_of(picture.data), picture.width, picture.height) == (kind, WIDTH, HEIGHT)
    pixels = picture.pixels()
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - [255, 0, 0]).max() < 8


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"%PDF-1.7", b"RIFF1234WAVE", b"\x89PNG", file_of("TIFF")])
def test_other_files_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(PictureError, match=r"^image 2 of message 3 .*must be a PNG, JPEG, GIF, WebP or BMP file$"):
        Pictures().take(data, "image 2 of message 3")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_a_truncated_file_is_refused_by_name(kind: str) -> None:
    data = file_of(kind, size=(64, 64))
    with pytest.raises(PictureError, match=r"^image 1 of message 1 cannot be decoded: "):
        Pictures().take(data[: len(data) * 2 // 3], "image 1 of message 1")


def test_the_pixels_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = file_of("PNG", "1", (3000, 3000), color=0)
    long = file_of("PNG", "1", (40000, 1), color=0)
    assert len(bomb) < 4000
    monkeypatch.setattr(Image.Image, "load", None)
    with pytest.raises(PictureError, match="has 3000 by 3000 pixels: at most 8 megapixels"):
        Pictures(max_megapixels=8).take(bomb)
    with pytest.raises(PictureError, match="has 40000 by 1 pixels"):
        Pictures().take(long)


def test_a_file_that_takes_long_to_decode_is_refused_soon() -> None:
    """A scan of a progressive JPEG goes over all pixels, and has few bytes; pieces of EXIF are put together."""
    file, pieces = file_of("JPEG", "L", (2000, 2000), color=128, progressive=True), [60_000] * 300 + [8] * 20_000
    scans = file[file.rindex(b"\xff\xda") : -2] * 4000
    exif = b"".join(b"\xff\xe1%b%b" % ((size + 2).to_bytes(2), b"Exif".ljust(size, b"\0")) for size in pieces)
    for bomb in (file[:-2] + scans + file[-2:], file[:2] + exif + file[2:]):
        began = time.thread_time()
        with pytest.raises(PictureError, match=r"^the image takes more than 0.2 s to decode"):
            Pictures(cpu_seconds=0.2).take(bomb)
        assert time.thread_time() - began < 5
    assert Pictures().take(file).width == 2000


@pytest.mark.parametrize("size", [(10_000, 10_000), (20_000, 20_000)])
def test_what_pillow_itself_calls_a_bomb_is_refused_without_its_warning(size: tuple[int, int]) -> None:
    small = bytearray(file_of("BMP"))
    small[18:26] = size[0].to_bytes(4, "little") + size[1].to_bytes(4, "little")
    with pytest.raises(PictureError, match=f"^the image has {size[0]} by {size[1]} pixels: at most 50 megapixels"):
        Pictures().take(bytes(small))


ODD = """
import io, sys
from PIL import Image, TiffImagePlugin
from leftoff.picture import Pictures
noise = Image.new("RGB", (8, 8))
for tag in range(64):
    file = io.BytesIO()
    head = b"Exif\\0\\0II*\\0\\x08\\0\\0\\0\\x01\\0" + (1000 + tag).to_bytes(2, "little")
    noise.save(file, "JPEG", exif=head + b"\\x02\\0\\xff\\0\\0\\0\\xff\\xff\\0\\0\\0\\0\\0\\0")
    Pictures().take(file.getvalue(), "image 1")
print({*getattr(TiffImagePlugin, "__warningregistry__", ())} - {"version"})
"""


def test_what_is_odd_in_a_file_is_neither_told_nor_kept() -> None:
    ran = subprocess.run([sys.executable, "-c", ODD], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("set()\n", "")


def test_an_equal_file_is_decoded_once_for_each_owner() -> None:
    pictures, data = Pictures(), file_of("PNG")
    first = pictures.take(data, namespace="a/")
    assert (first.width, pictures.num_decoded) == (WIDTH, 1)
    assert first.pixels().shape[0] == HEIGHT
    assert pictures.num_decoded == 1
    again = pictures.take(bytes(bytearray(data)), namespace="a/")
    assert (again.digest, again.width, pictures.num_decoded) == (first.digest, WIDTH, 1)
    assert pictures.take(data, namespace="b/").width == WIDTH
    assert pictures.num_decoded == 2


def test_pixels_go_with_the_last_picture_that_shows_them() -> None:
    pictures = Pictures()
    one, same = (pictures.take(file_of("PNG")) for _ in range(2))
    assert pictures.held_bytes == PIXEL_BYTES, "once for both"
    one.drop_pixels()
    assert pictures.held_bytes == PIXEL_BYTES
    assert (same.pixels() == [255, 0, 0]).all()
    assert (pictures.held_bytes, pictures.num_decoded) == (0, 1)
    other = pictures.take(file_of("BMP"))
    assert pictures.held_bytes == PIXEL_BYTES
    del other
    assert pictures.held_bytes == 0
    assert pictures.take(file_of("BMP")).width == WIDTH
    assert (pictures.held_bytes, pictures.num_decoded) == (0, 2), "its size is remembered"


def test_pixels_beyond_the_limit_are_decoded_again() -> None:
    pictures = Pictures(max_held_bytes=PIXEL_BYTES)
    one, other = pictures.take(file_of("PNG")), pictures.take(file_of("BMP"))
    assert (pictures.held_bytes, pictures.num_decoded) == (PIXEL_BYTES, 2)
    assert one.pixels().shape == other.pixels().shape
    assert (pictures.held_bytes, pictures.num_decoded) == (0, 3)


def test_a_broken_file_is_tried_again_and_never_known() -> None:
    pictures, data = Pictures(), file_of("PNG", size=(64, 64))[:-30]
    for _ in range(2):
        with pytest.raises(PictureError):
            pictures.take(data)
    assert pictures.num_decoded == 2


def test_transparency_is_shown_on_white() -> None:
    pixels = Pictures().take(file_of("PNG", "RGBA", color=(0, 0, 255, 0))).pixels()
    assert (pixels == 255).all()


def test_sixteen_bits_of_grey_keep_their_brightness() -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 2), 0x8000, np.uint16)).save(file, "PNG")
    assert (Pictures().take(file.getvalue()).pixels() == 0x80).all()


def test_a_picture_stands_as_its_camera_was_held() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Pictures().take(file_of("JPEG", exif=exif.tobytes()))
    assert (picture.width, picture.height) == (HEIGHT, WIDTH)
    assert picture.pixels().shape == (WIDTH, HEIGHT, 3)


def test_of_an_animation_the_first_frame_counts() -> None:
    file = io.BytesIO()
    frames = [Image.new("RGB", (WIDTH, HEIGHT), color) for color in ("lime", "red", "blue")]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert (Pictures().take(file.getvalue()).pixels() == [0, 255, 0]).all()


def test_the_marker_is_made_of_the_bytes() -> None:
    pictures = Pictures()
    one, same, other = (pictures.take(file_of(kind)) for kind in ("PNG", "PNG", "BMP"))
    assert one.marker == same.marker != other.marker
    assert MARKER.fullmatch(one.marker)


def test_base64_is_known_by_the_bytes_it_stands_for() -> None:
    rng = np.random.default_rng(1)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (400, 600, 3), np.uint8)).save(file, "PNG")
    data, pictures = file.getvalue(), Pictures()
    plain = base64.b64encode(data).decode()
    assert len(plain) > 3 << 18, "several pieces"
    first = pictures.take(data)
    for text in (plain, f"data:image/png;base64,{plain}", base64.encodebytes(data).decode()):
        same = pictures.take(text)
        assert (same.digest, same.data) == (first.digest, data)
    assert pictures.num_decoded == 1


@pytest.mark.parametrize("text", ["data:image/png,AAAA", "data:", "file:///etc/passwd", "AAA", "\udcff", "ä"])
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(PictureError, match=r"^the image (is no base64|must be a data URL in base64)"):
        Pictures().take(text)


def test_an_old_picture_costs_little_more_than_its_hash() -> None:
    """From the bytes of the body on, in every dialect: `python -m lab.speed.pictures`. In truth a tenth more."""
    found = measure(num_pictures=4, rounds=5)
    assert max(found[name] for name in WAYS) < 2 * found["the hash alone"]
