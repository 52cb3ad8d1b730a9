"""Customers in shops: what the generated datasets of the kinds `orders` and `desk` share.

A customer has wishes. A hint tells that there is one, the answer to a question for it tells its value. Training,
validation and test tasks have different shops and items, and so have those for cloning a start agent.
"""

from __future__ import annotations

import random
import re
import tomllib
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, TypeAdapter

from sweet.tasks.base import Message, Task, spoken
from sweet.tasks.facts import UNKNOWN
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import MAX_TURNS


class Wish(BaseModel):
    """What a customer can wish (the files `wishes.toml` describe the fields)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asks: tuple[str, ...]
    cues: tuple[str, ...]
    hints: tuple[str, ...]
    answers: tuple[str, ...]
    said: str
    values: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A generated dataset.

    Attributes:
        name: of the dataset.
        questions: before the answer, in a dialogue of the agent's `turns`.
        draw: returns a task with a shop of a key of `SHOPS`, for a number of questions.
        cloning: whether it is for cloning a start agent.
        reply_tokens: maximum tokens of a reply.
        kind: of the tasks.
        agent: the packaged model that plays it (`sweet.tasks.packaged`), if there is one.
    """

    name: str
    questions: int
    draw: Callable[[random.Random, str, int], Task]
    cloning: bool = False
    reply_tokens: int = 48
    kind: str = "orders"
    agent: str | None = None

    @property
    def splits(self) -> Mapping[str, int]:
        """Number of tasks in each split."""
        return {"train": 4000} if self.cloning else {"train": 2000, "validation": 256, "test": 512}

    @property
    def turns(self) -> int:
        """Number of the agent's messages to the customer in a dialogue."""
        return self.questions + 1


def read_wishes(package: str) -> Mapping[str, Wish]:
    """Return the wishes in a package's `wishes.toml`, by name."""
    table = tomllib.loads(resources.files(package).joinpath("wishes.toml").read_text("utf-8"))
    return MappingProxyType(TypeAdapter(dict[str, Wish]).validate_python(table))


_TABLE = tomllib.loads(resources.files(__package__).joinpath("shops.toml").read_text("utf-8"))
LOOKS: Sequence[str] = tuple(_TABLE["looks"])
SHOPS: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType(_TABLE["shops"])
"""The items by shop, by the split whose tasks they are in; `cloning` are those for a start agent."""

_NO_WISH = ("I do not mind.", "That does not matter to me.", "As you like.")


class ShopKind(TaskKind):
    """A kind whose datasets are generated: customers in shops.

    Attributes:
        generated: its datasets, by name.
    """

    generated: Mapping[str, Dataset]

    @property
    def splits(self) -> Mapping[str, Collection[str]]:
        return {name: tuple(dataset.splits) for name, dataset in self.generated.items()}

    def drawn(self, tasks: str, split: str) -> list[Task]:
        return list(_tasks(self.generated[tasks], split))

    def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
        """Return what the facts say to the agent's last message, or that the customer does not mind, in one of several
        wordings."""
        reply = super().scripted_reply(task, dialogue)
        if reply != UNKNOWN:
            return reply
        return _NO_WISH[zlib.crc32(f"{task.id} {len(dialogue)}".encode()) % len(_NO_WISH)]


@cache
def _tasks(dataset: Dataset, split: str) -> tuple[Task, ...]:
    """Return the tasks of a split: always the same, no two of them equal."""
    rng, drawn = random.Random(f"sweet {dataset.name} {split}"), dict[str, Task]()
    while len(drawn) < dataset.splits[split]:
        task = dataset.draw(rng, "cloning" if dataset.cloning else split, dataset.questions)
        named = task.model_copy(update={"id": f"{dataset.name}-{split}-{len(drawn):04d}"})
        drawn.setdefault(task.ground_truth, named)
    return tuple(drawn.values())


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article; the "u" of "used" is spoken as a consonant."""
    return f"an {noun}" if noun[0] in "aeiou" and not noun.startswith("us") else f"a {noun}"


_TURNS = re.compile(r"(?<!\d)(\d{1,4}) turns")


class DialogueState:
    """What an agent knows of the wishes of a customer, by the messages so far, its system prompt first.

    Of each message of the agent to the customer `asked` has the wish, empty where it asks for none. `text` is all that
    the customer said, `hinted` the wishes in it, and `values` those in the replies to the questions. `last` says
    whether the agent's next message to the customer is its last.
    """

    def __init__(self, messages: Sequence[Message], wishes: Mapping[str, Wish]) -> None:
        by_question = {question: name for name, wish in wishes.items() for question in wish.asks}
        dialogue = spoken(messages)
        replies = [message.content for message in dialogue if message.role == "user"]
        self.wishes = wishes
        self.asked = [by_question.get(message.content, "") for message in dialogue if message.role == "assistant"]
        self.text = " ".join(replies)
        self.hinted = [name for name, wish in wishes.items() if any(hint in self.text for hint in wish.hints)]
        self.values: dict[str, str] = {}
        for name, reply in zip(self.asked, replies[1:], strict=False):
            values = wishes[name].values if name else ()
            if value := next((value for value in values if value.casefold() in reply.casefold()), None):
                self.values[name] = value
        turns = _TURNS.search(messages[0].content) if messages else None
        self.last = len(self.asked) + 1 >= (int(turns[1]) if turns else MAX_TURNS)

    def question(self, rng: random.Random, unread: float) -> str | None:
        """Return a question for a wish that was hinted at, or with the probability `unread` for any; None if all of
        them were asked for."""
        names = list(self.wishes) if rng.random() < unread else self.hinted
        rest = [name for name in names if name not in self.asked]
        return rng.choice(self.wishes[rng.choice(rest)].asks) if rest else None
