"""Draw the tasks of the generated datasets: an item of a shop, and wishes in an order.

The request has the hint of the first wish. The hint of each further one is in the request too, or in the answer to the
wish before it, as likely. `orders-cloning` and `orders-long-cloning` are for cloning a start agent: their shops belong
to no split of the others.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

from sweet.tasks.base import Fact, Task
from sweet.tasks.shops import LOOKS, SHOPS, Dataset, read_wishes, with_article

ITEM = "item"
"""The test that the order names the item."""

_OPENINGS = (
    "Hello! I would like to order {item} from {shop}.",
    "Good morning, is this {shop}? I need {item}.",
    "Hi, I am looking for {shop}, and I want {item}.",
)

WISHES = read_wishes(__package__)


def draw(rng: random.Random, key: str, wish_count: int) -> Task:
    """Return a task with a shop of a key of `SHOPS`."""
    shops = SHOPS[key]
    shop = rng.choice(sorted(shops))
    item = f"{rng.choice(LOOKS)} {rng.choice(shops[shop])}"
    names = rng.sample(sorted(WISHES), wish_count)
    values = {name: rng.choice(WISHES[name].values) for name in names}
    sentences = [rng.choice(_OPENINGS).format(item=with_article(item), shop=shop), rng.choice(WISHES[names[0]].hints)]
    answers = {name: rng.choice(WISHES[name].answers).format(v=values[name]) for name in names}
    for before, name in pairwise(names):
        hint = rng.choice(WISHES[name].hints)
        if rng.random() < 0.5:
            sentences.append(hint)
        else:
            answers[before] += f" {hint}"
    return Task(
        id="drawn",
        problem_description=" ".join(sentences),
        ground_truth=order_of(item, values),
        test_cases={ITEM: item, **values},
        facts=tuple(Fact(topic=name, cues=WISHES[name].cues, answer=answers[name]) for name in names),
    )


def order_of(item: str, values: Mapping[str, str]) -> str:
    """Return the order of an item with these wishes, as a sentence."""
    wishes = [WISHES[name].said.format(v=value) for name, value in values.items()]
    return f"The order: {', '.join([with_article(item), *wishes])}."


ORDERS = {
    dataset.name: dataset
    for dataset in (
        Dataset("orders", 2, draw),
        Dataset("orders-long", 3, draw),
        Dataset("orders-cloning", 2, draw, cloning=True),
        Dataset("orders-long-cloning", 3, draw, cloning=True),
    )
}
"""The datasets by name. A task has as many wishes as there are questions."""
