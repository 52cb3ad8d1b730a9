"""A language model as the judge of replies, the baseline that the paper compares its critic with.

It is asked about one reply at a time, with greedy decoding. The prompt shows the training-time information c, the
dialogue so far and the reply; the answer is a score of 1 to 9, one digit, which is one token in common vocabularies.
Where the server reports the likeliest tokens at the digit's position, the score is the mean of the digits under their
probabilities, which ranks finer than nine grades; otherwise it is the digit. All replies of a turn are scored in the
same way (`basis`).

The prompt is `texts/judge.txt` of this package or the user's file; one without the placeholder `{reference}` does not
show c. Text by models and people is indented in the prompt (`sweet.tasks.prompts`), and only the score is read
from an answer. After an answer without a score the judge is asked once more, with the reason; if that answer has none
either, the reply is not judged. Replies with the same text are judged once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from sweet.gathering import run_all
from sweet.judges.base import Judged, above_mean
from sweet.learn.rows import Basis, CandidateTurn
from sweet.llm.base import Alternatives, ChatClient, Reply, RequestFailed, Sampling
from sweet.stages.base import digest_of
from sweet.tasks.base import Message
from sweet.tasks.prompts import check_placeholders, fill, indented, placeholder_in, read_prompt

LIKELIEST = 20
"""Likeliest tokens requested at each position: the maximum of OpenAI's interface, and vllm's default maximum."""

_REQUIRED = ("dialogue", "reply")
_OPTIONAL = ("reference", "instructions")
_SPEAKER = {"user": "Person:", "assistant": "Assistant:", "tool": "Tool:"}
_RETRY = (
    "Your last answer could not be read: {why}. Answer with one line and nothing else: SCORE: and a whole number from"
    " 1 to 9."
)

_PAD = r"[ \t\r*_`]*+"  # possessive: two of them are adjacent where nothing stands between
_SCORE = re.compile(
    rf"^[ \t*_`#>]*+SCORE{_PAD}:{_PAD}(?P<digit>[1-9]){_PAD}(?:/[ \t]*+9{_PAD})?\.?{_PAD}$", re.IGNORECASE
)
_SAID_LINE = re.compile(r"^(?![ \t]*```\w*\s*$).*\S.*$", re.MULTILINE)  # neither empty nor a code fence
_DIGIT_ALONE = re.compile(r"^\s*(?P<digit>[1-9])\s*$")


@dataclass(frozen=True)
class JudgePrompt:
    """The judge's prompt, with placeholders."""

    text: str

    @classmethod
    def of(cls, file: Path | None) -> JudgePrompt:
        """Read the prompt from a file, or the packaged one.

        Raises:
            InputError: the file cannot be read, or its placeholders are wrong.
        """
        if file is None:
            return cls((resources.files("sweet.judges") / "texts" / "judge.txt").read_text("utf-8").strip())
        text = read_prompt(file)
        required = " and ".join(f"{{{place}}}" for place in _REQUIRED)
        fix = f"{required} must be there, {{reference}} and {{instructions}} are optional"
        check_placeholders(text, _REQUIRED, file, whose="judge's", fix=fix, optional=_OPTIONAL)
        return cls(text)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.text)

    @cached_property
    def informed(self) -> bool:
        """Whether the prompt shows the training-time information."""
        return "reference" in map(placeholder_in, self.text.split("\n"))

    def fill(self, observation: Sequence[Message], hidden: str, reply: str) -> str:
        """Return the prompt for one reply to an observation, both with the calls of tools."""
        messages = [m for m in observation if m.role != "system"]
        return fill(
            self.text,
            {
                "instructions": [_quoted(m.content) for m in observation if m.role == "system"],
                "reference": [_quoted(hidden)],
                "dialogue": [line for m in messages for line in (_SPEAKER[m.role], _quoted(m.whole))],
                "reply": [_quoted(reply)],
            },
        )


@dataclass(frozen=True)
class Score:
    """The judge's score of a reply.

    Attributes:
        digit: 1 to 9.
        expected: the mean digit under the reported probabilities; None where they were not reported.
    """

    digit: int
    expected: float | None

    def value(self, basis: Basis) -> float:
        return self.expected if basis == "expected" and self.expected is not None else float(self.digit)


class LLMJudge:
    """Asks a language model through `client` (implements `sweet.judges.base.Judge`).

    Args:
        concurrency: turns that are judged at the same time; `client` limits the requests in flight.
        max_tokens: of an answer.
    """

    batch_size = 1

    def __init__(
        self, client: ChatClient, prompt: JudgePrompt, *, concurrency: int = 64, max_tokens: int = 512
    ) -> None:
        self.client, self.prompt, self.max_calls = client, prompt, concurrency
        self.sampling = Sampling(temperature=0.0, max_tokens=max_tokens, top_logprobs=LIKELIEST)

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        """Judge each turn: a reply's advantage is its score minus the mean score of the turn's sampled replies."""
        return await run_all([self._judge(turn) for turn in turns])

    async def _judge(self, turn: CandidateTurn) -> Judged:
        texts = list(dict.fromkeys(reply.whole for reply in turn.all_replies))
        answers = await run_all(
            [self._score(self.prompt.fill(turn.observation, turn.task.hidden, text)) for text in texts]
        )
        by_text = dict(zip(texts, answers, strict=True))
        valid_scores = [answer for answer in answers if isinstance(answer, Score)]
        # Means and single digits are not compared with each other.
        basis: Basis = "expected" if all(score.expected is not None for score in valid_scores) else "number"
        scores = [by_text[reply.whole] for reply in turn.all_replies]
        return above_mean(turn, basis, [score if isinstance(score, str) else score.value(basis) for score in scores])

    async def _score(self, question: str) -> Score | str:
        """Return the score that the judge gives, or why it gives none."""
        try:
            score = await self._ask(question)
            if isinstance(score, str):
                score = await self._ask(f"{question}\n\n{_RETRY.format(why=score)}")
        except RequestFailed as error:
            return error.what
        return f"The judge's second answer could not be read either: {score}." if isinstance(score, str) else score

    async def _ask(self, question: str) -> Score | str:
        completion = await self.client.chat([Message(role="user", content=question)], self.sampling)
        return read_score(completion.replies[0])


def read_score(reply: Reply) -> Score | str:
    """Read the score from a judge's answer; a string is the reason why it cannot be read.

    The score must be in the last line, or in the first where no other line has one: a score that the judge quotes from
    the text that it judges is not mistaken for its own.
    """
    lines = [(match.group(), match.start()) for match in _SAID_LINE.finditer(reply.text)]
    scores = [(match, start) for line, start in lines if (match := _SCORE.match(line))]
    if len(lines) == 1 and (digit := _DIGIT_ALONE.match(lines[0][0])):
        scores = [(digit, lines[0][1])]
    if not scores:
        cut = "it was cut off before a score came"
        return cut if reply.finish_reason == "length" else "it has no line SCORE: and a whole number from 1 to 9"
    match, start = scores[-1]
    if start != lines[-1][1] and (len(scores) > 1 or start != lines[0][1]):
        return "its score is not in its last line"
    return Score(int(match["digit"]), _expected_digit(reply, start + match.start("digit")))


def _expected_digit(reply: Reply, offset: int) -> float | None:
    """Return the mean digit under the probabilities of the likeliest tokens at the digit's position.

    Args:
        offset: of the digit in the text of the reply.
    """
    position = _token_position(reply, offset)
    if position is None:
        return None
    weights: dict[int, float] = {}
    for text, logprob in position.top_logprobs:
        if _DIGIT_ALONE.match(text):
            weights[int(text)] = weights.get(int(text), 0.0) + math.exp(min(logprob, 0.0))
    total = sum(weights.values())
    if int(position.text) not in weights or total <= 0:
        return None
    return sum(digit * weight for digit, weight in weights.items()) / total


def _token_position(reply: Reply, offset: int) -> Alternatives | None:
    """Return the token position at `offset` of the text, if its token is a digit alone and the tokens contain the text.

    The tokens may contain more than the text: the reasoning before it, the token that ends the turn.
    """
    positions = reply.alternatives or ()
    tokens = "".join(position.text for position in positions)
    behind = tokens[::-1].find(reply.text[::-1])  # find is linear, rfind is not
    begin = len(tokens) - behind - len(reply.text)
    if behind < 0:
        return None
    for position in positions:
        if begin + offset < len(position.text):
            return position if _DIGIT_ALONE.match(position.text) else None
        begin -= len(position.text)
    return None


def _quoted(text: str) -> str:
    """Indent every line, for every character that Python treats as the end of a line."""
    return indented("\n".join(text.splitlines()))
