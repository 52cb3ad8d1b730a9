"""The prompts of the code task."""

from __future__ import annotations

from sweet.tasks import prompts


class Prompts(prompts.Prompts):
    """The prompts of the code task."""

    package = "sweet.tasks.code"
    speaker = "Programmer"
