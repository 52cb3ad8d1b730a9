"""The words of the html task: how the agent is addressed, and the text beside the screenshots that the human gets.

The human's text has no place for the reference: it is the second of two screenshots.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweet.tasks import prompts
from sweet.tasks.base import Message, Task
from sweet.tasks.html.page import without_page
from sweet.tasks.prompt_text import fill, indented

_PAGE = "(a page)"


class Prompts(prompts.Prompts):
    """The texts of the html task."""

    package = "sweet.tasks.html"
    places = ("request", "dialogue")
    speaker = "Designer"

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> str:
        """The text for a model that plays the human: what was asked for and said, without the pages' source."""
        said: list[str] = []
        for message in dialogue:
            text = without_page(message.content, _PAGE) if message.role == "assistant" else message.content
            said += [self.label(message.role), indented(text)]
        return fill(self.human, {"request": [indented(task.problem_description)], "dialogue": said})
