"""Chat messages to the ids that a model is prompted with.

Rendering and tokenising are two steps (the template writes the special tokens, so the tokenizer must add none). Where
a template refuses the system role, the system text goes to the head of the first user message. A template that leaves
system messages out is taken at its word, as every server would: its model was made to be prompted without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweet.tasks.base import Message


class ChatTemplate:
    """The chat template of one tokenizer, with the generation prompt at the end."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._fold_system = self._refuses_system()

    def text(self, messages: Sequence[Message]) -> str:
        """The rendered prompt.

        Raises:
            ValueError: the template refuses these messages (their order of roles, say).
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
        """The rendered prompt as token ids; ValueError as for `text`."""
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
