"""Models that a rule must not ask; those of a test answer some of what it may."""

from __future__ import annotations

from typing import Any


class Unasked:
    def logprobs(self, *args: Any, **more: Any) -> Any:
        raise AssertionError("the rule asks for no probabilities")

    def solutions(self, *args: Any, **more: Any) -> Any:
        raise AssertionError("the rule asks for no solutions")

    def advantages(self, *args: Any, **more: Any) -> Any:
        raise AssertionError("the rule asks no critic")

    def train_reward(self, *args: Any, **more: Any) -> Any:
        raise AssertionError("the rule trains no reward model")
