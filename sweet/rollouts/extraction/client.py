"""Opens an attacker by its name as the agent of dialogues (`ScriptedClient`)."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.llm.scripted import ATTACK, ScriptedClient
from sweet.rollouts.extraction.attacks import SCRIPTED, Attacker, reply_of
from sweet.rollouts.extraction.conversation import Conversation
from sweet.suggestions import did_you_mean
from sweet.tasks.base import Message
from sweet.tasks.kind import TaskKind

LANGUAGE = "python"
"""The language of the answers that the attackers put together."""


def attacker(name: str) -> Attacker:
    """Return the attacker of a name without the prefix `attack:`.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in SCRIPTED:
        what = f"There is no attacker {name}.{did_you_mean(name, SCRIPTED, ATTACK)}"
        raise UsageError(what, where=option("agent", ATTACK + name), fix=f"one of {', '.join(SCRIPTED)}")
    return SCRIPTED[name]


def check_attacker(name: str, kind: TaskKind) -> None:
    """Check that `--agent NAME`, which begins with `attack:`, names an attacker that can attack tasks of a kind.

    Raises:
        UsageError: it does not.
    """
    if kind.language != LANGUAGE:
        raise UsageError(
            f"The attackers ask for functions in Python, and answers to {kind.name} tasks are none.",
            where=option("agent", name),
            fix=Hint(option("task", "code"), ", or another agent"),
        )
    attacker(name.removeprefix(ATTACK))


def open_attacker(chosen: Attacker, max_turns: int) -> ScriptedClient:
    """Return an attacker as a chat client, for dialogues of at most `max_turns` turns."""

    def reply(messages: Sequence[Message], _temperature: float, _seed: int | None) -> str:
        return reply_of(chosen, Conversation.of(messages, max_turns))

    return ScriptedClient(reply, ATTACK + chosen.name)
