"""Encodes dialogues about web pages with screenshots, as input of a critic.

The training-time information c is the screenshot of the target page, at the start of the first user message; the page
of each reply is at the start of the user message after it. So for the regression head a turn ends after its page's
screenshot, where the next human reply would start. A reply without a page and a page that did not load are described in
words.

While a dialogue is encoded, a screenshot is a marker in the text, which is replaced by the tokens that the chat
template writes for an image. Its placeholder ids are temporarily replaced by a negative number of its own, so that
equal ids are equal images. Markers and placeholders in the text of a dialogue itself are escaped: text cannot be
mistaken for an image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from sweet.errors import UsageError
from sweet.learn.replies import ReplyIds, unmaskable
from sweet.learn.sequences import Picture, TokenSequence
from sweet.learn.tokens import ChatEncoder
from sweet.learn.vision_processor import VisionProcessor
from sweet.llm.base import Reply
from sweet.llm.template import PROBE
from sweet.tasks.base import Message, ProtocolName, Tool

NO_PAGE = "There is no page in this reply."
FAILED = "The page did not load: "

_OPEN, _CLOSE = "\ue000", "\ue001"  # from Unicode's private use area, which text does not use
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_REPLACED = str.maketrans({_OPEN: "\ufffd", _CLOSE: "\ufffd"})
_NEXT = "Wvuts"
"""A human reply that does not occur in data."""


class Screenshots(Protocol):
    """The screenshots of pages."""

    def render_missing(self, pages: Iterable[str]) -> None:
        """Render the screenshots that are missing, in one batch.

        Raises:
            SweetError: they cannot be rendered.
        """

    def __call__(self, page: str) -> Path | str:
        """The file of a page's screenshot, or the reason why there is none."""


class PageEncoder(ChatEncoder):
    """Encodes dialogues with the screenshots of their pages; c is HTML and is replaced by its screenshot.

    Args:
        vision: prepares the images for the model.
        screenshots: the screenshots of pages.
        page_of: returns the page in a reply, None if there is none.

    Raises:
        UsageError: as for `ChatEncoder`, or the chat template does not support images.
    """

    def __init__(
        self, tokenizer: Any, vision: VisionProcessor, screenshots: Screenshots, page_of: Callable[[str], str | None]
    ) -> None:
        self.vision, self.screenshots, self.page_of = vision, screenshots, page_of
        self._pictures: list[Picture] = []
        self._numbers: dict[Path, int] = {}
        self._reserved: list[str] = tokenizer.convert_ids_to_tokens(sorted(vision.reserved))
        super().__init__(tokenizer)
        self._find_picture()
        self._find_opening()

    # The chat template ----------------------------------------------------------------------------------------

    def _find_picture(self) -> None:
        """Determine what the template writes for an image."""
        text_part = {"type": "text", "text": PROBE}
        with_picture, without = (
            str(self.tokenizer.apply_chat_template([{"role": "user", "content": parts}], tokenize=False))
            for parts in ([{"type": "image"}, text_part], [text_part])
        )
        before, probe, after = without.partition(PROBE)
        self._picture = with_picture[len(before) : len(with_picture) - len(probe + after)]
        rebuilt = before + self._picture + probe + after == with_picture
        if not probe or not rebuilt or super()._tokenize([self._picture])[0].count(self.vision.token) != 1:
            raise UsageError(
                "The chat template of the model does not support images.",
                where=self.name,
                fix="put the chat_template of the model's own family into its directory",
            )

    def _find_opening(self) -> None:
        """Determine what the template writes between a reply and the human's next message."""
        messages = [("user", "b"), ("assistant", PROBE), ("user", _NEXT)]
        rendered = self._template([{"role": role, "content": text} for role, text in messages], generate=False)
        self._opening, next_message, _ = rendered.partition(PROBE)[2].partition(_NEXT)
        if not next_message or self._tokenize([self._opening])[0][:1] != [self.end_of_turn]:
            raise unmaskable(self.tokenizer, "the text after a reply does not start with the end of its turn")

    # Images in texts -------------------------------------------------------------------------------------------

    def _page_text(self, page: str | None) -> str:
        """What is shown of a page: the marker of its screenshot, or words, and a line break."""
        if page is None:
            return f"{NO_PAGE}\n"
        screenshot = self.screenshots(page)
        if isinstance(screenshot, str):
            return f"{FAILED}{self._clean(screenshot)}\n"
        if screenshot not in self._numbers:
            self._numbers[screenshot] = len(self._pictures)
            self._pictures.append(self.vision.picture(screenshot))
        return f"{_OPEN}{self._numbers[screenshot]}{_CLOSE}\n"

    def _clean(self, text: str) -> str:
        """Escape everything in `text` that could be mistaken for an image."""
        text = text.translate(_REPLACED)
        for token in self._reserved:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        marked = [[int(number) for number in _MARK.findall(text)] for text in texts]
        if not any(marked):
            return super()._tokenize(texts)
        rows = super()._tokenize([_MARK.sub(lambda _: self._picture, text) for text in texts])
        return [self._expand_pictures(row, numbers) for row, numbers in zip(rows, marked, strict=True)]

    def _expand_pictures(self, row: list[int], numbers: list[int]) -> list[int]:
        """Repeat each placeholder for each token of its image, as the image's own negative number."""
        if row.count(self.vision.token) != len(numbers):
            raise ValueError("a placeholder without an image")
        waiting = iter(numbers)
        ids: list[int] = []
        for token in row:
            if token == self.vision.token:
                number = next(waiting)
                ids.extend([-1 - number] * self._pictures[number].tokens)
            else:
                ids.append(token)
        return ids

    # Dialogues -------------------------------------------------------------------------------------------------

    def prepare(self, texts: Iterable[str], hidden: Iterable[str]) -> None:
        pages = [page for page in map(self.page_of, texts) if page is not None]
        self.screenshots.render_missing(dict.fromkeys([*hidden, *pages]))

    def save_pretrained(self, folder: Path) -> None:
        super().save_pretrained(folder)
        self.vision.save_pretrained(folder)

    def prompts(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        hidden: str | None = None,
        protocol: ProtocolName = "paper",
        tools: Sequence[Tool] = (),
    ) -> list[list[int]]:
        """As for `ChatEncoder`. c is placed as in protocol `paper`: the published code has no critic for pages."""
        return super().prompts(
            conversations, hidden=None if hidden is None else self._page_text(hidden).rstrip(), tools=tools
        )

    def encode_replies(self, replies: Sequence[Reply]) -> list[ReplyIds]:
        return super().encode_replies([self._sanitize(reply) for reply in replies])

    def _sanitize(self, reply: Reply) -> Reply:
        reserved = self.vision.reserved.intersection(reply.token_ids or ())
        thought = None if reply.thought is None else self._clean(reply.thought)
        token_ids = None if reserved else reply.token_ids
        return replace(reply, text=self._clean(reply.text), token_ids=token_ids, thought=thought)

    def _prepare_messages(self, messages: list[Message]) -> list[Message]:
        prepared: list[Message] = []
        for number, message in enumerate(messages):
            text = self._clean(message.content)
            if message.role == "user" and number and messages[number - 1].role == "assistant":
                text = self._page_text(self.page_of(messages[number - 1].content)) + text.lstrip()
            thought = None if message.thought is None else self._clean(message.thought)
            prepared.append(message.model_copy(update={"content": text, "thought": thought}))
        return prepared

    def _reply_suffix(self, reply: Reply) -> list[int]:
        if reply.tool_calls:
            return []
        ids = self._tokenize([self._opening + self._page_text(self.page_of(reply.text))])[0]
        return ids[1:] if reply.ended else ids

    def _finalize(self, sequence: TokenSequence) -> TokenSequence:
        numbers = [-1 - token for token, _ in groupby(sequence.ids) if token < 0]
        ids = tuple(self.vision.token if token < 0 else token for token in sequence.ids)
        return TokenSequence(ids, sequence.spans, tuple(self._pictures[number] for number in numbers))
