"""The words of the code task: how agent and human are addressed."""

from __future__ import annotations

from sweet.tasks import prompts


class Prompts(prompts.Prompts):
    """The texts of the code task."""

    package = "sweet.tasks.code"
    speaker = "Programmer"
