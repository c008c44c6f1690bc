"""Images in requests: base64, with or without the head of a data URL."""

from __future__ import annotations

import base64
import binascii

from PIL.Image import Image

from headwise.errors import UserError
from headwise.serve.limits import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS
from headwise.vision.decode import decode_upright


def decode_base64_image(text: str) -> Image:
    """The image, upright; its pixels are decoded here, so that a damaged one is refused."""
    head, comma, rest = text.partition(",")
    if comma and not (head.startswith("data:image/") and head.endswith(";base64")):
        raise UserError("image: is no data URL of an image in base64; send data:image/png;base64,...")
    try:
        content = base64.b64decode(rest if comma else head, validate=True)
    except (binascii.Error, ValueError):
        raise UserError("image: is not base64; send the bytes of an image file in base64") from None
    if len(content) > MAX_IMAGE_BYTES:
        raise UserError(f"image: has {len(content):,} bytes, and at most {MAX_IMAGE_BYTES:,} are taken; send a smaller")
    return decode_upright(content, "image", MAX_IMAGE_PIXELS)
