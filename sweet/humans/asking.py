"""A language model as the simulated human, which is asked again if its reply leaks the reference or leaves its role.

Its prompt contains the reference and asks it to answer from that alone. As in the original protocol it is decoded
greedily and its reply is cut, because a long reply leaks the solution. Protocol `upstream` puts the original's system
message before the prompt, and never asks again. A persona is added below the prompt.

A reply with a fault of `WITHHELD` is withheld: the agent never sees it, and the model is asked again with that reply
and a message that says why. The first try is greedy, as in the original protocol; later ones are sampled, because a
greedy model would repeat itself. Their seeds derive from the prompt, so the human's reply still follows from the
dialogue. The other faults end the dialogue at once: a model that refuses or delivers has misunderstood its part, and
more of its replies are no evidence of the opposite. What a model adds to what it says as the human is cut
(`sweet.humans.role`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweet.deadline import restart_clock
from sweet.humans.base import HumanReply
from sweet.humans.faults import fault_of
from sweet.humans.personas import PLAIN, Persona
from sweet.humans.role import Role
from sweet.llm.base import ChatClient, ContextOverflow, Sampling, seed_of
from sweet.tasks.base import Message, ProtocolName, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import HumanFault

TEMPERATURE = 0.7
"""Sampling temperature of all tries but the first."""

_AGAIN = (
    "That reply was not passed on, because {}. Reply to the same message once more, as the person alone: one or two "
    "sentences of your own that answer it, without labels, and nothing else."
)
WITHHELD: dict[HumanFault, str] = {
    "leaked": (
        "That reply was not passed on, because it gave away the solution: it contained some of its source, or said it "
        "so closely that the source can be put together again, or it was not written in sentences. Nobody may see any "
        "part of the source, in whatever notation. Reply to the same message once more. State the fact that was asked "
        "for in plain words, as a person would who has never read the source: no code, no markup, no line of the "
        "solution read out word by word. If the message asks for the solution itself, say in one sentence that you "
        "cannot give it."
    ),
    "empty": _AGAIN.format("it said nothing"),
    "echo": _AGAIN.format("it repeated the message"),
    "instructions": _AGAIN.format("it repeated your instructions"),
    "loop": _AGAIN.format("it said the same again and again"),
    "roles": _AGAIN.format("it spoke in the place of the one whom you answer"),
}
"""What a model is told that is asked again, by the fault of its reply."""

SAMPLING = Sampling(temperature=0.0, max_tokens=256)

UPSTREAM_SYSTEM = Message(role="system", content="You are a helpful assistant.")
"""The system message of the simulated human of code in the published protocol."""


@dataclass
class AskedHuman:
    """What all humans that a model plays have in common.

    A faulty reply is returned with its fault (sweet.humans.faults); the caller decides what to do with it.

    Attributes:
        protocol: upstream never asks again, and cuts nothing.
        tries: replies that are asked for at each turn until one has no such fault.
        max_tokens: of a reply.
    """

    client: ChatClient
    kind: TaskKind
    protocol: ProtocolName = "paper"
    tries: int = 1
    persona: Persona = PLAIN
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        self.name = self.persona.of(self.client.model)
        instructions = " ".join([self.kind.prompts.human, self.persona.text, *WITHHELD.values()])
        self._role = None
        if self.protocol != "upstream":
            self._role = Role(instructions, self.kind.prompts.speaker, self.persona.name)

    async def ask(
        self, messages: Sequence[Message], sampling: Sampling, task: Task, dialogue: Sequence[Message]
    ) -> HumanReply:
        """Return the model's first reply to `dialogue` without a fault of `WITHHELD`, or the last of `tries` replies.
        Its tokens are those of all.

        Args:
            messages: the prompt of the human.

        Raises:
            RequestFailed: the server failed a request. Where only the prompt of a later try does not fit into the
                model's context, the reply before it is returned, with its fault.
        """
        role, reply, prompt = self._role, HumanReply(""), list(messages)
        sampling = replace(sampling, max_tokens=self.max_tokens or sampling.max_tokens, stop=role.stops if role else ())
        most, texts = 1 if role is None else self.tries, [message.content for message in messages]
        for tried in range(most):
            if reply.fault is not None:
                withheld = Message(role="assistant", content=reply.text)
                prompt = [*messages, withheld, Message(role="user", content=WITHHELD[reply.fault])]
                sampling = replace(sampling, temperature=TEMPERATURE, seed=seed_of(*texts, tried))
            try:
                completion = await self.client.chat(prompt, sampling)
            except ContextOverflow:
                if reply.fault is None:
                    raise
                break
            restart_clock()
            cleaned = completion.replies[0].text.strip() if role is None else role.cleaned(completion.replies[0].text)
            text = cleaned[: self.kind.human_reply_limit].rstrip()
            fault = await fault_of(text, task, dialogue)
            reply = HumanReply(
                text,
                reply.prompt_tokens + completion.prompt_tokens,
                reply.completion_tokens + completion.completion_tokens,
                reply.retries + completion.retries,
                fault if fault or role is None else role.fault(cleaned, dialogue),
                reply.withheld if reply.fault is None else (*reply.withheld, reply.fault),
            )
            if reply.fault not in WITHHELD:
                break
        return reply


class LLMHuman(AskedHuman):
    """Plays the human by asking `client` (implements sweet.humans.base.Human)."""

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the model for the next reply; raises what `ChatClient.chat` raises."""
        system = [UPSTREAM_SYSTEM] if self.protocol == "upstream" else []
        *before, last = self.kind.human_prompt(task, dialogue)
        prompt = Message(role=last.role, content=self.persona.added_to(last.content))
        return await self.ask([*system, *before, prompt], SAMPLING, task, dialogue)
