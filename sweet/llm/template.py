"""Renders chat messages to the ids that a model is prompted with.

Rendering and tokenising are separate steps (the template writes the special tokens, so the tokenizer must not add any).
If a template refuses the system role, the system text is prepended to the first user message. A template that omits
system messages is used as is, as every server does: its model was trained without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweet.tasks.base import Message


class ChatTemplate:
    """The chat template of one tokenizer, with the generation prompt appended."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._fold_system = self._refuses_system()

    def text(self, messages: Sequence[Message]) -> str:
        """The rendered prompt.

        Raises:
            ValueError: the template refuses these messages, for example the order of their roles.
        """
        from jinja2.exceptions import TemplateError

        rows = [{"role": m.role, "content": m.content} for m in messages]
        if self._fold_system and len(rows) > 1 and rows[0]["role"] == "system":
            system = rows.pop(0)["content"]
            rows[0] = {"role": rows[0]["role"], "content": f"{system}\n\n{rows[0]['content']}"}
        try:
            return self._render(rows)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from error

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """The rendered prompt as token ids. Raises the ValueError of `text`."""
        ids: list[int] = self.tokenizer(self.text(messages), add_special_tokens=False)["input_ids"]
        return ids

    def _render(self, rows: list[dict[str, str]]) -> str:
        return str(self.tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True))

    def _refuses_system(self) -> bool:
        from jinja2.exceptions import TemplateError

        try:
            self._render([{"role": "system", "content": "x"}, {"role": "user", "content": "x"}])
        except TemplateError:
            return True
        return False
