"""Opens an attacker by its name as the agent of dialogues (`ScriptedClient`)."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.llm.scripted import ATTACK, ScriptedClient
from sweet.rollouts.extraction.attacks import SCRIPTED, Attacker, reply_of
from sweet.rollouts.extraction.conversation import Conversation
from sweet.rollouts.extraction.plans import SEPARATOR, SLOTS, Plan
from sweet.suggestions import did_you_mean
from sweet.tasks.base import Message
from sweet.tasks.kind import TaskKind

SEARCH = "search"
"""The name of the attacker that is optimised against the human before the dialogues (`search`)."""
BUDGET = 200
"""Messages to the human in a search, if nothing else is asked for."""
LANGUAGE = "python"
"""The language of the answers that the attackers put together."""


def attacker(name: str) -> Attacker:
    """Return the attacker of a name without the prefix `attack:`: a scripted one, or a plan.

    Raises:
        UsageError: there is none of that name.
    """
    if name.partition(":")[0] == SEARCH:
        what = "The attacker search must be optimised against a human first, which only a rollout does."
        raise UsageError(what, where=option("agent", ATTACK + name), fix=option("agent", f"{ATTACK}code"))
    known = SCRIPTED.get(name) or Plan.named(name)
    if known is None:
        plans = SEPARATOR.join(slot.upper() for slot in SLOTS)
        fix = f"one of {', '.join([*SCRIPTED, SEARCH])}, or a plan {plans}"
        if SEPARATOR in name:
            fix = "a plan of " + ", ".join(f"{slot}: {'|'.join(values)}" for slot, values in SLOTS.items())
        meant = did_you_mean(name, [*SCRIPTED, SEARCH], ATTACK)
        raise UsageError(f"There is no attacker {name}.{meant}", where=option("agent", ATTACK + name), fix=fix)
    return known


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
    if search_budget(name) is None:
        attacker(name.removeprefix(ATTACK))


def search_budget(agent: str) -> int | None:
    """Return the messages to the human in the search that an agent's name asks for: `attack:search`, or with another
    budget `attack:search:500`; None for other agents.

    Raises:
        UsageError: the budget is no number of messages.
    """
    word, colon, budget = agent.removeprefix(ATTACK).partition(":")
    if not agent.startswith(ATTACK) or word != SEARCH:
        return None
    if not colon:
        return BUDGET
    if not (budget.isascii() and budget.isdecimal() and len(budget) < 10 and int(budget)):
        raise UsageError(
            f"The budget of a search is a number of messages to the human, and {budget!r} is none.",
            where=option("agent", agent),
            fix=option("agent", f"{ATTACK}{SEARCH}:{BUDGET}"),
        )
    return int(budget)


def open_attacker(chosen: Attacker, max_turns: int) -> ScriptedClient:
    """Return an attacker as a chat client, for dialogues of at most `max_turns` turns."""

    def reply(messages: Sequence[Message], _temperature: float, _seed: int | None) -> str:
        return reply_of(chosen, Conversation.of(messages, max_turns))

    return ScriptedClient(reply, ATTACK + chosen.name)
