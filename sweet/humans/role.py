"""How a weak model leaves its role as the human: what is cut from its replies, and which of them are faults.

Cut are the label of its own role before the reply, quotes around all of it, and all from where a label begins later:
there the model goes on with the dialogue by itself. A reply is a fault if it begins as the agent, or speaks as the
assistant that a model is trained to be (`roles`), repeats `SHARED` words in a row of the instructions in the prompt
(`instructions`), or repeats itself again and again (`loop`). The rules prefer precision, as those of
`sweet.humans.faults`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from sweet.tasks.base import Message
from sweet.tasks.trajectory import HumanFault

SHARED = 8
"""Words in a row that nobody writes by chance."""
TIMES = 3
"""How often these words make a loop; and after how many different messages with the same reply it is one."""
LONG = 40
"""Characters of such a reply at least: an answer may be short."""

_HUMANS = "human|person|me|you|mensch|ich|humano|persona|yo|humain|moi|人类|我"
_BEFORE = "user|reply|answer|response|benutzer|antwort|usuario|respuesta|utilisateur|réponse|用户|回答|回复"
_AGENTS = (
    "programmer|designer|assistant|agent|developer|coder|ai|bot|chatbot|programmierer|entwickler|assistent|programador"
    "|desarrollador|asistente|programmeur|développeur|程序员|助手|设计师"
)
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」", "'": "'", "‘": "’"}
_DENIES = re.compile(r"\b(?:not?|never|cannot|\w{1,20}n['’]t|nicht|kein\w*|nunca|pas)\b|[不没]", re.IGNORECASE)
"""A reply that denies may be repeated: a person who does not know something says so in the same words each time."""

_IS_MODEL = re.compile(
    r"\bI(?:['’]m| am) (?:here to (?:help|assist) you with|not a human|(?:\w{1,20} ){0,4}(?:AI|language model))\b"
)


class Role:
    """The role of the human.

    Args:
        instructions: the text of its prompt. speaker: the agent's name in it. persona: the name of the persona.

    Attributes:
        stops: texts with which a model begins to speak as the agent.
    """

    def __init__(self, instructions: str, speaker: str, persona: str) -> None:
        humans, agents = f"{_HUMANS}|{re.escape(persona)}", f"{_AGENTS}|{re.escape(speaker)}"
        self._own, self._agent, self._later = (
            re.compile(text, re.IGNORECASE)
            for text in (
                rf"\A(?:{_label(f'{humans}|{_BEFORE}')}[\s*_]{{0,9}}+)*+",
                _label(agents),
                rf"\n{_label(f'{humans}|{agents}')}|(?<=[.!?\"”*]) {_label(f'assistant|{re.escape(speaker)}')}",
            )
        )
        self._instructions = " ".join(words_of(instructions))
        self.stops = tuple(dict.fromkeys((f"\n{speaker}:", "\nProgrammer:", "\nAssistant:")))

    def cleaned(self, reply: str) -> str:
        """Return a reply without what is not said as the human."""
        text = reply.strip()
        if not self._agent.match(text) and (later := self._later.search(text)):
            text = text[: later.start()].strip()
        for _ in range(2):  # quotes around a label, and a label before quotes
            text = self._own.sub("", text)
            inside = text[1:-1]
            if inside and _QUOTES.get(text[0]) == text[-1] not in inside and inside[-1] in ".!?。！？":
                text = inside.strip()
        return text

    def fault(self, reply: str, dialogue: Sequence[Message]) -> HumanFault | None:
        """Return the fault of a cleaned reply to `dialogue`, whose last message is the agent's, or None."""
        if self._agent.match(reply) or _IS_MODEL.search(reply):
            return "roles"
        words = words_of(reply)
        runs = Counter(" ".join(words[place : place + SHARED]) for place in range(len(words) - SHARED + 1))
        if any(run in self._instructions for run in runs):
            return "instructions"
        loops = any(times >= TIMES and re.search("[^\\W\\d_]{3}", run) for run, times in runs.items())
        same = {previous.content for previous, message in pairwise(dialogue) if message.content == reply}
        loops |= len(same - {dialogue[-1].content}) >= TIMES and len(reply) >= LONG and not _DENIES.search(reply)
        return "loop" if loops else None


def _label(names: str) -> str:
    return rf"[\s*_#>\[(<]{{0,9}}+(?:{names})[\s*_\])>]{{0,9}}+[:：]"


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())
