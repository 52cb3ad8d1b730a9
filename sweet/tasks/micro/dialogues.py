"""Dialogues of a scripted agent of mixed quality, from which the micro agent is cloned.

The scripted agent asks as many questions as its family allows and then delivers the function with the rules it learned.
It does not know which rules are typical, so it asks for any that it has not asked for; sometimes it asks a useless
question, repeats itself, delivers at once, or writes a wrong value (`Mistakes`). Success is therefore lost at
identifiable turns, independently of each other, and hardly any dialogue has no mistake.

In a share of the dialogues the request contains the reference function (the training-time information c), as a critic
sees it. There half of the questions are read from c, so that the agent learns to read it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sweet.tasks.base import Message, Task, with_hidden
from sweet.tasks.code.prompts import Prompts
from sweet.tasks.facts import UNKNOWN, reply_from_facts
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.micro.family import MICRO, Family
from sweet.tasks.micro.generator import Instance, as_task, solution
from sweet.tasks.micro.rules import BY_NAME, RATE, USELESS_QUESTIONS
from sweet.tasks.prompts import fill_turns

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

    def play(self) -> list[Message]:
        task = as_task(self.instance, "cloned")
        messages = [
            Message(role="system", content=fill_turns(Prompts.packaged().agent, self.family.turns)),
            Message(role="user", content=task.problem_description),
        ]
        while len(self.asked) < self.family.questions and self.rng.random() >= self.family.mistakes.early:
            question = self._question()
            messages += [
                Message(role="assistant", content=question),
                Message(role="user", content=self._ask(task, question)),
            ]
        messages.append(Message(role="assistant", content=f"{ANSWER_MARKER}\n{self._answer()}"))
        return with_hidden(messages, task.hidden) if self.with_reference else messages

    def _question(self) -> str:
        draw, mistakes = self.rng.random(), self.family.mistakes
        if draw < mistakes.useless:
            return self.rng.choice(USELESS_QUESTIONS)
        if draw < mistakes.useless + mistakes.repeated and self.asked:
            return self.rng.choice(self.asked)
        missing = [name for name in self.instance.wanted if name not in self.known]
        if self.with_reference and missing and self.rng.random() < READ:
            return BY_NAME[self.rng.choice(missing)].question
        questions = (BY_NAME[name].question for name in self.family.unstated)
        return self.rng.choice([question for question in questions if question not in self.asked])

    def _ask(self, task: Task, question: str) -> str:
        reply = reply_from_facts(task, question)
        self.asked.append(question)
        for name in self.instance.wanted:
            if reply != UNKNOWN and BY_NAME[name].answer.format(v=self.instance.values[name]) == reply:
                self.known[name] = self.instance.values[name]
        return reply

    def _answer(self) -> str:
        """Return the function with the known rules, sometimes with a mistake."""
        values = {RATE.name: self.instance.rate, **self.known}
        if self.rng.random() < self.family.mistakes.slip:
            name = self.rng.choice(list(values))
            values[name] = self.rng.choice(BY_NAME[name].values)
        return solution(self.instance.function, values)
