"""A language model as the judge of replies, the baseline that the paper compares its critic with.

It is asked about one reply at a time, greedily: shown the training-time information c, the dialogue so far and the
reply, it answers with a score of 1 to 9, one digit and so one token in the vocabularies there are. Where the server
tells the likeliest tokens at the digit's place, the score is the mean of the digits under their probabilities, which
ranks finer than nine grades; else it is the digit itself. All replies of a turn are scored the same way (`basis`).

The prompt is a file, `texts/judge.txt` in this package or one of one's own; one without the place `{reference}` keeps c
from the judge. What models and people wrote stands indented in it (`sweet.tasks.prompt_text`), and of the answer only
the score is read. An answer without one is asked for again once, with the reason; a reply that gets none then is not
judged. Replies of the same text are judged once.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from sweet.llm.base import ChatClient, Place, Reply, RequestFailed, Sampling
from sweet.ranking.judge import Judged, SampledTurn, Unjudged, above_mean, candidate
from sweet.stages.base import digest_of
from sweet.stages.failures import first_cause
from sweet.stages.rows import Basis, Candidate
from sweet.tasks.base import Message, Task
from sweet.tasks.prompt_text import check_places, fill, indented, place_of, read_prompt
from sweet.tasks.trajectory import Trajectory

LIKELIEST = 20
"""As many tokens as OpenAI's interface tells, and vllm's unless it was started with another bound."""

_NEEDED, _POSSIBLE = ("dialogue", "reply"), ("reference", "instructions")
_SPEAKER = {"user": "Person:", "assistant": "Assistant:"}
_AGAIN = (
    "Your last answer could not be read: {why}. Answer with one line and nothing else: SCORE: and a whole number from"
    " 1 to 9."
)

_DRESS = r"[ \t\r*_`]*"
_SCORE = re.compile(
    rf"^[ \t*_`#>]*SCORE{_DRESS}:{_DRESS}(?P<digit>[1-9]){_DRESS}(?:/[ \t]*9{_DRESS})?\.?{_DRESS}$", re.IGNORECASE
)
_LINE = re.compile(r"^.*\S.*$", re.MULTILINE)
_BARE = re.compile(r"^\s*(?P<digit>[1-9])\s*$")


@dataclass(frozen=True)
class JudgePrompt:
    """What the judge is asked, with places for what it is shown."""

    text: str

    @classmethod
    def of(cls, file: Path | None) -> JudgePrompt:
        """The prompt of a file, or the packaged one.

        Raises:
            InputError: the file cannot be read, or lacks a place.
        """
        if file is None:
            return cls((resources.files("sweet.ranking") / "texts" / "judge.txt").read_text("utf-8").strip())
        text = read_prompt(file)
        there = {place_of(line) for line in text.split("\n")}
        places = (*_NEEDED, *(place for place in _POSSIBLE if place in there))
        fix = "{dialogue} and {reply} must be there, {reference} and {instructions} may be"
        check_places(text, places, file, whose="judge's", fix=fix)
        return cls(text)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.text)

    @cached_property
    def informed(self) -> bool:
        """Whether the judge is told the training-time information."""
        return "reference" in map(place_of, self.text.split("\n"))

    def fill(self, observation: Sequence[Message], hidden: str, reply: str) -> str:
        """The question about one reply to an observation."""
        spoken = [m for m in observation if m.role != "system"]
        return fill(
            self.text,
            {
                "instructions": [_quoted(m.content) for m in observation if m.role == "system"],
                "reference": [_quoted(hidden)],
                "dialogue": [line for m in spoken for line in (_SPEAKER[m.role], _quoted(m.content))],
                "reply": [_quoted(reply)],
            },
        )


@dataclass(frozen=True)
class Score:
    """What the judge said of a reply: the digit, and its mean under the digits' probabilities where they were told."""

    digit: int
    expected: float | None

    def on(self, basis: Basis) -> float:
        return self.expected if basis == "expected" and self.expected is not None else float(self.digit)


class LLMJudge:
    """Asks `client` (implements `sweet.ranking.judge.Judge`).

    Args:
        concurrency: turns that are judged at once; how many requests may be under way is the client's to say.
        max_tokens: of an answer.
    """

    together = 1

    def __init__(
        self, client: ChatClient, prompt: JudgePrompt, *, concurrency: int = 64, max_tokens: int = 512
    ) -> None:
        self.client, self.prompt, self.at_once = client, prompt, concurrency
        self.sampling = Sampling(temperature=0.0, max_tokens=max_tokens, likeliest=LIKELIEST)

    async def judge(self, turns: Sequence[SampledTurn]) -> list[Judged]:
        """The advantage of a reply is its score above the mean of the turn's sampled replies."""
        return await _all([self._judge(turn) for turn in turns])

    async def credit(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        """The score of each turn that the agent took, by the turn's index; a turn that could not be judged has none.

        Raises:
            sweet.errors.ServerError: the judge cannot be reached.
        """
        places = [(dialogue, turn) for dialogue in dialogues for turn in dialogue.agent_turns]
        found = await _all(
            [self._score(d.observation(t, system), d.task, d.dialogue_history[t].said) for d, t in places]
        )
        basis = _basis(found)
        credits: dict[str, dict[int, float]] = {dialogue.id: {} for dialogue in dialogues}
        for (dialogue, turn), score in zip(places, found, strict=True):
            if isinstance(score, Score):
                credits[dialogue.id][turn] = score.on(basis)
        return [credits[dialogue.id] for dialogue in dialogues]

    async def _judge(self, turn: SampledTurn) -> Judged:
        texts = list(dict.fromkeys(reply.text for reply in turn.everything))
        found = await _all([self._score(turn.observation, turn.trajectory.task, text) for text in texts])
        scores, basis = dict(zip(texts, found, strict=True)), _basis(found)
        given = [scores[reply.text] for reply in turn.everything]
        values = [score.on(basis) if isinstance(score, Score) else None for score in given]
        advantages = above_mean(values, len(turn.replies))
        return Judged(basis, tuple(map(_told, turn.everything, given, values, advantages)))

    async def _score(self, observation: Sequence[Message], task: Task, reply: str) -> Score | str:
        """The score of one reply, or why there is none."""
        question = self.prompt.fill(observation, task.hidden, reply)
        try:
            score = await self._ask(question)
            if isinstance(score, str):
                score = await self._ask(f"{question}\n\n{_AGAIN.format(why=score)}")
        except RequestFailed as error:
            return error.what
        return f"The judge's second answer could not be read either: {score}." if isinstance(score, str) else score

    async def _ask(self, question: str) -> Score | str:
        completion = await self.client.chat([Message(role="user", content=question)], self.sampling)
        return read_score(completion.replies[0])


def read_score(reply: Reply) -> Score | str:
    """The score in a judge's answer, or why it cannot be read.

    It stands in the last line, or in the first where that is the only one: a score that the judge quotes from what it
    judges is not taken for its own.
    """
    lines = [(match.group(), match.start()) for match in _LINE.finditer(reply.text)]
    scores = [(match, start) for line, start in lines if (match := _SCORE.match(line))]
    if len(lines) == 1 and (bare := _BARE.match(lines[0][0])):
        scores = [(bare, lines[0][1])]
    if not scores:
        cut = "it was cut off before a score came"
        return cut if reply.finish_reason == "length" else "it has no line SCORE: and a whole number from 1 to 9"
    match, start = scores[-1]
    if start != lines[-1][1] and (len(scores) > 1 or start != lines[0][1]):
        return "its score does not stand in its last line"
    return Score(int(match["digit"]), _expected(reply, start + match.start("digit")))


def _expected(reply: Reply, at: int) -> float | None:
    """The mean digit under the probabilities of the likeliest tokens at the place of the digit that stands at `at`."""
    place = _place_at(reply, at)
    if place is None:
        return None
    weights: dict[int, float] = {}
    for text, logprob in place.likeliest:
        if _BARE.match(text):
            weights[int(text)] = weights.get(int(text), 0.0) + math.exp(min(logprob, 0.0))
    total = sum(weights.values())
    if int(place.text) not in weights or total <= 0:
        return None
    return sum(digit * weight for digit, weight in weights.items()) / total


def _place_at(reply: Reply, at: int) -> Place | None:
    """The place of the token that is the digit at `at` of the text, where the tokens make up the text.

    They may hold more than it: the reasoning before it, the token that ends the turn.
    """
    places = reply.places or ()
    begin = "".join(place.text for place in places).rfind(reply.text)
    if begin < 0:
        return None
    for place in places:
        if begin + at < len(place.text):
            return place if _BARE.match(place.text) else None
        begin -= len(place.text)
    return None


def _basis(found: Iterable[Score | str]) -> Basis:
    """`expected` where every score has it: numbers that are got in different ways are not compared."""
    return "expected" if all(score.expected is not None for score in found if isinstance(score, Score)) else "number"


def _told(reply: Reply, score: Score | str, value: float | None, advantage: float | None) -> Candidate | Unjudged:
    if advantage is None:
        return Unjudged(reply.text, str(score))
    return candidate(reply, advantage, value)


def _quoted(text: str) -> str:
    """Indented, whatever it takes for the end of a line."""
    return indented("\n".join(text.splitlines()))


T = TypeVar("T")


async def _all(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What they give, in order; where one raises, the others are ended and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise first_cause(errors) from errors
    return [task.result() for task in tasks]
