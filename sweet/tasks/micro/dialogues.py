"""Dialogues of a scripted agent of mixed quality: what the micro agent is cloned from.

The scripted agent mostly asks for the next detail that it knows to be missing (the rate, then what the request hints
at, in its order, then "anything else?") and delivers when it knows all. At every turn it may also ask something
useless, ask about a rule nobody mentioned, repeat itself, or deliver too early with guessed values. Each wasted
question makes it much likelier to deliver too early, and after `PATIENCE` turns it delivers whatever it has. So
success is lost at turns that can be named, and a question that looks harmless has its price.

In a share of the dialogues the reference function (the training-time information c) stands in front, as a critic sees
it. The behaviour is the same there, but half of the guesses are read from c: so the agent learns to read it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sweet.tasks.base import Message, Task, reveal
from sweet.tasks.code.prompts import Prompts
from sweet.tasks.facts import UNKNOWN, tell
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.micro.generator import Instance, as_task, solution
from sweet.tasks.micro.rules import RATE, REST_QUESTION, RULES, USELESS_QUESTIONS

PATIENCE = 8
"""The scripted agent delivers at this turn at the latest."""

READ_SHARE = 0.5
"""How often a guess is read from c, where c is told."""

_BY_NAME = {rule.name: rule for rule in RULES}
_OTHERS = tuple(rule.name for rule in RULES if rule is not RATE)

ACTIONS = ("next", "other", "useless", "foreign", "repeat")
ASKING = (0.56, 0.06, 0.24, 0.10, 0.04)
"""How likely each question is while something is known to be missing."""
CLOSING = (0.72, 0.0, 0.16, 0.08, 0.04)
"""The same when only "anything else?" (`next`) is left to ask."""
KNOWING = (0.0, 0.0, 0.6, 0.2, 0.2)
"""The same when everything has been asked."""

EARLY = (0.04, 0.35, 0.7, 0.9)
"""How likely the agent delivers although something is missing, after so many wasted questions (the last: or more)."""
UNCLOSED = (0.3, 0.5, 0.8, 0.9)
"""The same when only "anything else?" is left to ask."""
FINISHED = 0.8
"""How likely it delivers when everything has been asked."""


def dialogue(instance: Instance, rng: random.Random, *, told: bool) -> list[Message]:
    """One dialogue with the scripted human, system prompt first; `told` puts c into the request."""
    return _Dialogue(instance, rng, told).play()


@dataclass
class _Dialogue:
    instance: Instance
    rng: random.Random
    told: bool
    known: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    wasted: int = 0

    def play(self) -> list[Message]:
        task = as_task(self.instance, "cloned")
        messages = [
            Message(role="system", content=Prompts.packaged().agent),
            Message(role="user", content=task.problem_description),
        ]
        question: str | None = self._question()
        while question is not None and len(self.asked) < PATIENCE - 1:
            messages += [
                Message(role="assistant", content=question),
                Message(role="user", content=self._ask(task, question)),
            ]
            question = self._question()
        messages.append(Message(role="assistant", content=f"{ANSWER_MARKER}\n{self._answer()}"))
        return reveal(messages, task.hidden) if self.told else messages

    def _question(self) -> str | None:
        """What to ask next; None to deliver."""
        missing = self._missing()
        rest = REST_QUESTION not in self.asked
        patience = min(self.wasted, len(EARLY) - 1)
        delivers = EARLY[patience] if missing else UNCLOSED[patience] if rest else FINISHED
        if self.rng.random() < delivers:
            return None
        action = self.rng.choices(ACTIONS, ASKING if missing else CLOSING if rest else KNOWING)[0]
        if action == "next":
            return _BY_NAME[missing[0]].question if missing else REST_QUESTION
        if action == "other":
            return _BY_NAME[self.rng.choice(missing)].question
        if action == "foreign":
            return self._foreign()
        if action == "repeat" and self.asked:
            return self.rng.choice(self.asked)
        return self.rng.choice(USELESS_QUESTIONS)

    def _missing(self) -> list[str]:
        wanted = (RATE.name, *self.instance.hinted)
        return [name for name in wanted if name not in self.known]

    def _foreign(self) -> str:
        hidden = self.instance.hidden
        if self.told and hidden and self.rng.random() < READ_SHARE:
            return _BY_NAME[hidden].question
        return _BY_NAME[self.rng.choice([name for name in _OTHERS if name not in self.instance.hinted])].question

    def _ask(self, task: Task, question: str) -> str:
        reply = tell(task, question)
        self.wasted += reply == UNKNOWN or question in self.asked
        self.asked.append(question)
        for name, value in self.instance.values.items():
            if reply != UNKNOWN and _BY_NAME[name].answer.format(v=value) == reply:
                self.known[name] = value
        return reply

    def _answer(self) -> str:
        """The function from what is known; the rest is guessed, or left out where it is not even suspected."""
        values = dict(self.known)
        for name in self._missing():
            values[name] = self.instance.values[name] if self._reads() else self.rng.choice(_BY_NAME[name].values)
        hidden = self.instance.hidden
        if hidden and hidden not in values and self._reads():
            values[hidden] = self.instance.values[hidden]
        return solution(self.instance.function, values)

    def _reads(self) -> bool:
        return self.told and self.rng.random() < READ_SHARE
