"""Dialogues of a scripted agent of mixed quality: what the micro agent is cloned from.

The scripted agent has its family's questions and then delivers the function with what it was told. It does not know
which rules people of this kind mostly want, so it asks for any that it has not asked for; now and then it asks
something useless, repeats itself, delivers at once, or writes a wrong value (`Mistakes`). So success is lost at turns
that can be named, independently of each other, and hardly any dialogue is without a mistake.

In a share of the dialogues the reference function (the training-time information c) stands in front, as a critic sees
it. There half of the questions are read from c: so the agent learns to read it.
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
"""How likely a question is read from c, where c is told."""


def dialogue(instance: Instance, rng: random.Random, *, told: bool, family: Family = MICRO) -> list[Message]:
    """One dialogue with the scripted human, system prompt first; `told` puts c into the request."""
    return _Dialogue(instance, rng, told, family).play()


@dataclass
class _Dialogue:
    instance: Instance
    rng: random.Random
    told: bool
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
        return with_hidden(messages, task.hidden) if self.told else messages

    def _question(self) -> str:
        draw, mistakes = self.rng.random(), self.family.mistakes
        if draw < mistakes.useless:
            return self.rng.choice(USELESS_QUESTIONS)
        if draw < mistakes.useless + mistakes.repeated and self.asked:
            return self.rng.choice(self.asked)
        missing = [name for name in self.instance.wanted if name not in self.known]
        if self.told and missing and self.rng.random() < READ:
            return BY_NAME[self.rng.choice(missing)].question
        questions = (BY_NAME[name].question for name in self.family.untold)
        return self.rng.choice([question for question in questions if question not in self.asked])

    def _ask(self, task: Task, question: str) -> str:
        reply = reply_from_facts(task, question)
        self.asked.append(question)
        for name in self.instance.wanted:
            if reply != UNKNOWN and BY_NAME[name].answer.format(v=self.instance.values[name]) == reply:
                self.known[name] = self.instance.values[name]
        return reply

    def _answer(self) -> str:
        """The function from what is known, mostly."""
        values = {RATE.name: self.instance.rate, **self.known}
        if self.rng.random() < self.family.mistakes.slip:
            name = self.rng.choice(list(values))
            values[name] = self.rng.choice(BY_NAME[name].values)
        return solution(self.instance.function, values)
