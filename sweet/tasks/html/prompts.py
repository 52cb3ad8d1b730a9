"""The prompts of the html task: the agent's, and the text that the human gets with the screenshots.

The human's text has no placeholder for the reference, which is the second of the two screenshots. It may omit the
request and the dialogue: the screenshots alone are enough to name differences.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweet.tasks import prompts
from sweet.tasks.base import Message, Task
from sweet.tasks.html.page import without_page
from sweet.tasks.prompt_text import fill, indented, without

_PAGE = "(a page)"


class Prompts(prompts.Prompts):
    """The prompts of the html task."""

    package = "sweet.tasks.html"
    places = ()
    optional_places = ("request", "dialogue")
    speaker = "Designer"

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> str:
        """Return the text for a model that plays the human: the request and the dialogue, without the pages' source.

        Without a dialogue the paragraphs of both are omitted (recipe `upstream` shows its human the pictures alone).
        """
        if not dialogue:
            return without(self.human, self.optional_places)
        said: list[str] = []
        for message in dialogue:
            text = without_page(message.content, _PAGE) if message.role == "assistant" else message.content
            said += [self.label(message.role), indented(text)]
        return fill(self.human, {"request": [indented(task.problem_description)], "dialogue": said})
