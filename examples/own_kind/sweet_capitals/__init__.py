"""The kind of task `capitals`: the human has a country in mind, and the agent asks questions and names its capital."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sweet.tasks import prompts
from sweet.tasks.base import NO_ANSWER, Message, Task
from sweet.tasks.files import packaged_datasets
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.scores import AnswerScorer, JudgedTest, ScoringRequest, Verdict, nothing_delivered, tally

CAPITALS = {"France": "Paris", "Italy": "Rome", "Peru": "Lima", "Chile": "Santiago", "Japan": "Tokyo", "Iran": "Tehran"}


class Prompts(prompts.Prompts):
    """The files in `texts/`."""

    package = "sweet_capitals"
    speaker = "Traveller"


class CapitalScorer(AnswerScorer):
    """Compares names; upper and lower case are the same."""

    def __init__(self) -> None:
        super().__init__("capital-1")

    def verdicts(self, answers: Iterable[tuple[Task, str]]) -> Iterator[Verdict]:
        for task, answer in answers:
            right = answer.strip().lower() == task.ground_truth.lower()
            test = JudgedTest(passed=right, expected=task.ground_truth, got=answer)
            yield nothing_delivered(task) if answer == NO_ANSWER else tally({"capital": test})


def scripted_agent(messages: Sequence[Message], temperature: float, seed: int | None) -> str:
    """Ask for the country and name its capital; at a temperature above 0 sometimes guess instead."""
    known = next((name for name in CAPITALS for message in messages if f"It is {name}." in message.content), None)
    if known is None and random.Random(seed).random() < 0.4 * temperature:
        known = random.Random(seed).choice(list(CAPITALS))
    return "Which country is it?" if known is None else f"{ANSWER_MARKER} {CAPITALS[known]}"


class CapitalsKind(TaskKind):
    name = "capitals"
    texts = Prompts
    datasets = packaged_datasets(Path(__file__).parent / "tasks")

    @property
    def scripted_agent(self) -> ScriptedAgent:
        return scripted_agent

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[CapitalScorer]:
        yield CapitalScorer()
