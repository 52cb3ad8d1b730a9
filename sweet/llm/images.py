"""Messages with pictures, as OpenAI's interface takes them: parts of a message's content, each PNG as a data: URL.

A message of text stays a `Message`, and so do the rows that dialogues are kept in: pictures are shown and not kept.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sweet.tasks.base import Message

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _check_png(data: bytes) -> bytes:
    if not data.startswith(_SIGNATURE):
        raise ValueError("a picture must be a PNG file")
    return data


class ImageMessage(Message):
    """A message whose pictures, PNG files, come before its text, in their order."""

    images: tuple[Annotated[bytes, AfterValidator(_check_png)], ...] = Field(min_length=1, repr=False)


def message_content(message: Message) -> str | list[dict[str, Any]]:
    """A message's content as it is sent: its text, or one part for each picture and one for the text."""
    if not isinstance(message, ImageMessage):
        return message.content
    urls = [f"data:image/png;base64,{b64encode(png).decode()}" for png in message.images]
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
        {"type": "text", "text": message.content},
    ]
