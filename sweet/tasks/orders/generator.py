"""Draw the tasks of the generated datasets: an item of a shop, and wishes in an order.

The request has the hint of the first wish. The hint of each further one is in the request too, or in the answer to the
wish before it, as likely. `orders-cloning` and `orders-long-cloning` are for cloning a start agent: their shops belong
to no split of the others.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice, pairwise
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from sweet.tasks.base import Fact, Task
from sweet.tasks.files import check_split

ITEM = "item"
"""The test that the order names the item."""

_OPENINGS = (
    "Hello! I would like to order {item} from {shop}.",
    "Good morning, is this {shop}? I need {item}.",
    "Hi, I am looking for {shop}, and I want {item}.",
)


class Wish(BaseModel):
    """What a customer can wish (`wishes.toml` describes the fields)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    asks: tuple[str, ...]
    cues: tuple[str, ...]
    hints: tuple[str, ...]
    answers: tuple[str, ...]
    order: str
    values: tuple[str, ...]


class _Texts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    looks: tuple[str, ...]
    shops: dict[str, dict[str, tuple[str, ...]]]
    wishes: dict[str, Wish]


_TEXTS = _Texts.model_validate(tomllib.loads(resources.files(__package__).joinpath("wishes.toml").read_text("utf-8")))
LOOKS = _TEXTS.looks
WISHES: Mapping[str, Wish] = MappingProxyType(_TEXTS.wishes)
SHOPS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(_TEXTS.shops)
"""The items by shop, by the split whose orders they are in."""


@dataclass(frozen=True)
class Orders:
    """A generated dataset.

    Attributes:
        name: of the dataset.
        wanted: number of wishes of a task, and of the questions before the answer.
        splits: number of tasks in each split.
        shops: the key of `SHOPS` for each split.
        reply_tokens: maximum tokens of a reply.
        kind: of the tasks.
    """

    name: str
    wanted: int
    splits: Mapping[str, int]
    shops: Mapping[str, str]
    reply_tokens: int = 48
    kind: str = "orders"

    @property
    def turns(self) -> int:
        """Number of the agent's turns in a dialogue."""
        return self.wanted + 1


_SPLITS = {"train": 2000, "validation": 256, "test": 512}
_OWN = {name: name for name in _SPLITS}
_CLONING = {"train": "cloning"}

ORDERS = {
    dataset.name: dataset
    for dataset in (
        Orders("orders", 2, _SPLITS, _OWN),
        Orders("orders-long", 3, _SPLITS, _OWN),
        Orders("orders-cloning", 2, {"train": 4000}, _CLONING),
        Orders("orders-long-cloning", 3, {"train": 4000}, _CLONING),
    )
}
"""The datasets by name."""


def load(name: str, split: str) -> list[Task]:
    """Return the tasks of a split: always the same, no two of them equal.

    Raises:
        UsageError: there is no such split.
    """
    check_split(name, split, {name: tuple(ORDERS[name].splits)})
    return list(_tasks(name, split))


@cache
def _tasks(name: str, split: str) -> tuple[Task, ...]:
    dataset = ORDERS[name]
    drawn = islice(_drawn(dataset, split), dataset.splits[split])
    return tuple(task.model_copy(update={"id": f"{name}-{split}-{index:04d}"}) for index, task in enumerate(drawn))


def _drawn(dataset: Orders, split: str) -> Iterator[Task]:
    rng = random.Random(f"sweet {dataset.name} {split}")
    shops = SHOPS[dataset.shops[split]]
    seen: set[str] = set()
    while True:
        task = _draw(rng, shops, dataset.wanted)
        if task.ground_truth not in seen:
            seen.add(task.ground_truth)
            yield task


def _draw(rng: random.Random, shops: Mapping[str, tuple[str, ...]], wanted: int) -> Task:
    shop = rng.choice(sorted(shops))
    item = f"{rng.choice(LOOKS)} {rng.choice(shops[shop])}"
    names = rng.sample(sorted(WISHES), wanted)
    values = {name: rng.choice(WISHES[name].values) for name in names}
    said = [rng.choice(_OPENINGS).format(item=with_article(item), shop=shop), rng.choice(WISHES[names[0]].hints)]
    answers = {name: rng.choice(WISHES[name].answers).format(v=values[name]) for name in names}
    for before, name in pairwise(names):
        hint = rng.choice(WISHES[name].hints)
        if rng.random() < 0.5:
            said.append(hint)
        else:
            answers[before] += f" {hint}"
    return Task(
        id="drawn",
        problem_description=" ".join(said),
        ground_truth=order_of(item, values),
        test_cases={ITEM: item, **values},
        facts=tuple(Fact(topic=name, cues=WISHES[name].cues, answer=answers[name]) for name in names),
    )


def order_of(item: str, values: Mapping[str, str]) -> str:
    """Return the order of an item with these wishes, as a sentence."""
    wishes = [WISHES[name].order.format(v=value) for name, value in values.items()]
    return f"The order: {', '.join([with_article(item), *wishes])}."


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
