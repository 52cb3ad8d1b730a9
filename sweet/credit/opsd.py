"""On-policy self-distillation: the policy learns what it would say if it saw the training-time information c.

The teacher reads c where a critic does. The form `sampled` estimates the reverse divergence from the sampled token: log
teacher(a | o, c) - log pi(a | o) is its weight. The judge `untrained` reads the same number.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Credit, Hyperparameters, Models, OnlineRule, Which, nothing_to_learn
from sweet.learn.components import Distillation, Objective
from sweet.preferences.label import learnable
from sweet.tasks.base import ProtocolName
from sweet.tasks.trajectory import Trajectory

TEACHERS: dict[str, Which] = {"start": "start", "live": "policy", "average": "average"}


class OPSD(OnlineRule):
    """The teacher is the same model, shown c; the loss is KL(pi( | o) || teacher( | o, c)) at the tokens of the agent's
    turns (SDFT, arXiv 2601.19897; SDPO, arXiv 2601.20802)."""

    name = "opsd"
    reads = "rollouts"
    large = Hyperparameters(lr=1e-6, nll=0.0, epochs=1, batch=32)
    small = Hyperparameters(lr=5e-4, nll=0.0, epochs=1, batch=32)

    teacher: Literal["start", "live", "average"] = "start"
    """The model that sees c: the one at the start, the policy as it is now, or its moving average. Only an online
    training can tell them apart."""
    rate: float = Field(default=0.02, gt=0, le=1)
    """With teacher=average: how far the average moves to the policy's weights after each step."""
    form: Literal["sampled", "top"] = "sampled"
    """sampled: estimated from the sampled token. top: over the teacher's k most likely tokens and all others as one."""
    k: int = Field(default=20, ge=1, le=1000)
    """With form=top: number of most likely tokens."""
    bound: float = Field(default=2.0, ge=1)
    """With form=sampled: the largest ratio of a token's probability to that when it was sampled."""
    answers: bool = True
    """Also learn at the turn that ended the dialogue with an answer, where c gives away what the agent may not know."""

    @property
    def average_rate(self) -> float | None:
        return self.rate if self.teacher == "average" else None

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(None, nll, distil=Distillation(bound=self.bound))

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        dialogues = [batch.dialogues[name] for name in sorted(batch.dialogues) if learnable(batch.dialogues[name])]
        top = self.k if self.form == "top" else 0
        teacher_logprobs = models.logprobs(TEACHERS[self.teacher], dialogues, informed=True, top=top)
        credits: list[Credit] = []
        for dialogue in dialogues:
            turns = self._turns(dialogue)
            distil = {turn: logprobs for turn, logprobs in teacher_logprobs[dialogue.id].items() if turn in turns}
            credits += [Credit(dialogue.id, distil=distil)] if distil else []
        if not credits:
            raise nothing_to_learn("No dialogue has a turn that a teacher could read", batch)
        return credits

    def _turns(self, dialogue: Trajectory) -> list[int]:
        """The turns that are learned."""
        turns = dialogue.agent_turns
        return turns if self.answers or dialogue.outcome != "answered" else turns[:-1]
