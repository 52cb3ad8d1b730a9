"""A reporter that keeps what it is asked to say."""

from __future__ import annotations

from sweet.stages.base import Silent


class Heard(Silent):
    """Attributes:
    said: the narration.
    warnings: the warnings.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warnings: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
