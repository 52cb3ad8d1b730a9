"""Dialogues of a scripted agent of mixed quality, from which the micro agent is cloned.

The scripted agent asks as many questions as its family allows and then delivers the function with the rules it learned.
It does not know which rules are typical, so it asks for any that it has not asked for; sometimes it asks a useless
question, repeats itself, delivers at once, or writes a wrong value (`Mistakes`). Success is therefore lost at
identifiable turns, independently of each other, and hardly any dialogue has no mistake.

Where the answer is built in parts, it sends the lines that it knows in the order of the code: after its questions, or
by mistake between them. What it learns after such a mistake may belong above a line that was sent; it is sent below.

In a share of the dialogues the request contains the reference function (the training-time information c), as a critic
sees it. There half of the questions are read from c, so that the agent learns to read it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from sweet.tasks.base import NO_ANSWER, Message, Task, with_hidden
from sweet.tasks.code.kind import Prompts
from sweet.tasks.facts import UNKNOWN, reply_from_facts
from sweet.tasks.markers import ANSWER_MARKER, PART_MARKER, read_move
from sweet.tasks.micro.family import MICRO, Family
from sweet.tasks.micro.generator import CLONING, END, Instance, as_task, instances, solution
from sweet.tasks.micro.rules import BY_NAME, RATE, RULES
from sweet.tasks.prompts import fill_turns
from sweet.tasks.trajectory import Trajectory, Turn


@dataclass(frozen=True)
class Mistakes:
    """The probabilities of the scripted agent's mistakes.

    Attributes:
        early: delivering before all questions are asked, at each turn: the answer, or a part of it.
        useless: asking a question that no task answers.
        repeated: asking a question again.
        slip: writing one wrong value, in an answer or in each part.
    """

    early: float
    useless: float
    repeated: float
    slip: float


MISTAKES = {
    "micro": Mistakes(early=0.03, useless=0.1, repeated=0.05, slip=0.2),
    "micro-long": Mistakes(early=0.01, useless=0.05, repeated=0.03, slip=0.1),
    "micro-parts": Mistakes(early=0.05, useless=0.1, repeated=0.06, slip=0.02),
}
"""The mistakes on each generated dataset; where it has more turns, fewer at each."""

USELESS_QUESTIONS = (
    "Which language is it for?",
    "When do you need it?",
    "Who will use it?",
    "Should the code be short?",
    "Where will it run?",
    "Do you want comments?",
)
"""Questions that no task answers."""

READ = 0.5
"""The probability that a question is read from c, if the request contains c."""


def dialogue(instance: Instance, rng: random.Random, *, with_reference: bool, family: Family = MICRO) -> list[Message]:
    """Return a dialogue with the scripted human, system prompt first; `with_reference` puts c into the request."""
    return _Dialogue(instance, rng, with_reference, family).play()


@dataclass
class _Dialogue:
    instance: Instance
    rng: random.Random
    with_reference: bool
    family: Family
    known: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    """The rules whose lines were sent."""

    def play(self) -> list[Message]:
        task = as_task(self.instance, "cloned", self.family)
        messages = [
            Message(role="system", content=fill_turns(Prompts.packaged().agent, self.family.turns)),
            Message(role="user", content=task.problem_description),
        ]
        for reply in self._replies():
            messages += [
                Message(role="assistant", content=reply),
                Message(role="user", content=self._told(task, reply)),
            ]
        answer = END if self.family.part_lines else self._answer()
        messages.append(Message(role="assistant", content=f"{ANSWER_MARKER}\n{answer}"))
        return with_hidden(messages, task.hidden) if self.with_reference else messages

    def _replies(self) -> Iterator[str]:
        """Yield the replies before the answer: questions and parts."""
        in_parts = self.family.part_lines > 0
        while len(self.asked) < self.family.questions:
            if self.rng.random() >= MISTAKES[self.family.name].early:
                self.asked.append(self._question())
                yield self.asked[-1]
            elif not in_parts:
                return
            elif self._unsent():
                yield self._part()
        while in_parts and self._unsent():
            yield self._part()

    def _question(self) -> str:
        draw, mistakes = self.rng.random(), MISTAKES[self.family.name]
        if draw < mistakes.useless:
            return self.rng.choice(USELESS_QUESTIONS)
        if draw < mistakes.useless + mistakes.repeated and self.asked:
            return self.rng.choice(self.asked)
        missing = [name for name in self.instance.unstated if name not in self.known]
        if self.with_reference and missing and self.rng.random() < READ:
            return BY_NAME[self.rng.choice(missing)].question
        questions = (BY_NAME[name].question for name in self.family.unstated)
        return self.rng.choice([question for question in questions if question not in self.asked])

    def _told(self, task: Task, said: str) -> str:
        """Return the human's reply, and remember the value in it."""
        reply = reply_from_facts(task, said)
        for name in self.instance.unstated:
            if reply != UNKNOWN and BY_NAME[name].answer.format(v=self.instance.values[name]) == reply:
                self.known[name] = self.instance.values[name]
        return reply

    def _unsent(self) -> list[str]:
        """Return the rules of which the value is known and the line was not sent, in the order of the code."""
        known = {RATE.name, *self.known} - set(self.sent)
        return [rule.name for rule in RULES if rule.name in known]

    def _part(self) -> str:
        """Return the next line as a part, sometimes with a mistake."""
        rule = BY_NAME[self._unsent()[0]]
        function, values = self.instance.function, self.instance.values
        if self.rng.random() < MISTAKES[self.family.name].slip:
            values = {rule.name: self.rng.choice(rule.values)}
        lines = solution(function, {rule.name: values[rule.name]}).splitlines()[1 if self.sent else 0 : 2]
        self.sent.append(rule.name)
        return "\n".join([PART_MARKER, *lines])

    def _answer(self) -> str:
        """Return the function with the known rules, sometimes with a mistake."""
        values = {RATE.name: self.instance.rate, **self.known}
        if self.rng.random() < MISTAKES[self.family.name].slip:
            name = self.rng.choice(list(values))
            values[name] = self.rng.choice(BY_NAME[name].values)
        return solution(self.instance.function, values)


def cloning_dialogues(
    count: int, *, seed: int, told_share: float, family: Family = MICRO
) -> Iterator[tuple[Instance, list[Message]]]:
    """Yield instances, each with a dialogue on it, system prompt first.

    Args:
        told_share: share of the dialogues in which the request contains the reference function.
    """
    rng = random.Random(f"sweet {family.name} dialogues {seed}")
    for instance in islice(instances(CLONING, family), count):
        yield instance, dialogue(instance, rng, with_reference=rng.random() < told_share, family=family)


def scripted_trajectories(count: int, *, seed: int, told_share: float, family: Family = MICRO) -> Iterator[Trajectory]:
    """Yield the same dialogues as trajectories, as a rollout writes them.

    If the request contains the reference, it does so in the dialogue's first entry; the task is unchanged.
    """
    dialogues = cloning_dialogues(count, seed=seed, told_share=told_share, family=family)
    for number, (instance, messages) in enumerate(dialogues):
        _, *said = messages
        yield Trajectory(
            id=f"scripted-{number:05d}",
            task=as_task(instance, f"{family.name}-scripted-{number:05d}", family),
            dialogue_history=tuple(Turn.model_validate(message.model_dump()) for message in said),
            answer=read_move(said[-1].content, last=True, protocol="paper").answer or NO_ANSWER,
            seed=seed,
        )
