"""The `micro` datasets and the `micro` agent: a miniature ColBench for machines with only a CPU.

The datasets are generated (`rules`, `generator`): requests for small price functions, in ColBench's schema. The request
states the rate; the human knows three further rules, of the four that are typical of the function, and states those
that are asked for. `micro-long` is the same with five of eight rules, and in `micro-parts` the code is delivered line
by line (`family`).

The agents are language models of about one million parameters in Hugging Face layout, trained from scratch by imitating
a scripted agent of mixed quality (`dialogues`, `build`), which does not know which rules are typical, asks useless
questions, repeats itself, delivers too early and writes wrong values. Two ship with the package (`PACKAGED`): `micro`,
which may ask five questions, and `micro-parts`, which plays the two longer datasets. `sweet data micro-agent DIR`
builds them again.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from sweet.tasks.base import Task
from sweet.tasks.files import check_split
from sweet.tasks.micro.family import MICRO, PARTS, Family
from sweet.tasks.micro.generator import as_task, instances

AGENT = Path(__file__).parent / "agent"
"""The folder of the packaged checkpoint that plays `micro`."""

PACKAGED = MappingProxyType({MICRO.agent: AGENT, PARTS.agent: Path(__file__).parent / "agent_parts"})
"""The folders of the packaged checkpoints, by the names of the models."""


def load(split: str, family: Family = MICRO) -> list[Task]:
    """Return the tasks of `train`, `validation` or `test`: always the same, none of them in two splits.

    Raises:
        UsageError: there is no such split.
    """
    check_split(family.name, split, {family.name: tuple(family.splits)})
    return list(_tasks(split, family))


@cache  # two tenths of a second, for each of the many calls of `sweet train` and of a study
def _tasks(split: str, family: Family) -> tuple[Task, ...]:
    drawn = islice(instances(split, family), family.splits[split])
    return tuple(as_task(one, f"{family.name}-{split}-{index:04d}", family) for index, one in enumerate(drawn))
