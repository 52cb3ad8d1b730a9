"""Messages with images in the format of OpenAI's API: content parts with each PNG as a data: URL.

A message without images stays a `Message`, and so do the messages in stored dialogues: images are sent and not stored.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sweet.tasks.base import Message

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _check_png(data: bytes) -> bytes:
    if not data.startswith(_SIGNATURE):
        raise ValueError("an image must be a PNG file")
    return data


class ImageMessage(Message):
    """A message whose images, PNG files, come before its text, in order."""

    images: tuple[Annotated[bytes, AfterValidator(_check_png)], ...] = Field(min_length=1, repr=False)


def message_content(message: Message) -> str | list[dict[str, Any]]:
    """A message's content as it is sent: its text, or one part for each image and one for the text."""
    if not isinstance(message, ImageMessage):
        return message.content
    urls = [f"data:image/png;base64,{b64encode(png).decode()}" for png in message.images]
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
        {"type": "text", "text": message.content},
    ]
