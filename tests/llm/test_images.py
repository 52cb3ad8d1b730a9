"""Messages with images: how they are sent, and which engines refuse them."""

from __future__ import annotations

import asyncio
import base64

import pytest
from pydantic import ValidationError

from sweet.llm.base import ImageMessage, RequestFailed, Sampling, message_content
from sweet.llm.connect import open_client
from sweet.llm.embedded import EmbeddedClient
from sweet.tasks.base import Message
from tests.llm.conftest import served
from tests.render.pictures import plain

ONE, OTHER = plain("#ff0000", 3, 2), plain("#0000ff", 5, 4)
SHOWN = ImageMessage(role="user", content="Which is taller?", images=(ONE, OTHER))


def test_images_come_first_in_order_and_the_text_last() -> None:
    parts = message_content(SHOWN)
    assert isinstance(parts, list)
    assert [part["type"] for part in parts] == ["image_url", "image_url", "text"]
    urls = [part["image_url"]["url"] for part in parts[:2]]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    assert [base64.b64decode(url.partition(",")[2], validate=True) for url in urls] == [ONE, OTHER]
    assert parts[2]["text"] == "Which is taller?"


def test_a_text_message_is_unchanged() -> None:
    message = Message(role="user", content="Hello")
    assert message_content(message) == "Hello"
    assert message.model_dump() == {"role": "user", "content": "Hello"}


@pytest.mark.parametrize("images", [(), (b"GIF89a",), (b"",), (ONE, b"<svg>")])
def test_only_png_files_are_accepted(images: tuple[bytes, ...]) -> None:
    with pytest.raises(ValidationError):
        ImageMessage(role="user", content="?", images=images)


def test_the_embedded_engine_and_its_server_refuse_images(client: EmbeddedClient) -> None:
    async def work() -> None:
        with pytest.raises(RequestFailed, match="does not accept images"):
            await client.chat([SHOWN], Sampling(max_tokens=4))
        async with served(client) as url, open_client("tiny", [url]) as remote:
            with pytest.raises(RequestFailed, match=r"400.*does not accept images"):
                await remote.chat([SHOWN], Sampling(max_tokens=4))

    asyncio.run(work())
