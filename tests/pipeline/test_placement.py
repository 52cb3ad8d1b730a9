"""Placement of servers on GPUs: properties over all small requests."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.llm.base import Role
from sweet.pipeline.servers import ROLES, place
from sweet.pipeline.tables import ServerTable

Tables = dict[Role, ServerTable]


def table(gpus: int, replicas: int | None) -> ServerTable:
    return ServerTable(gpus=gpus, replicas=replicas or "fill")


SIZES = st.tuples(st.integers(0, 4), st.none() | st.integers(1, 4))
TABLES = st.lists(SIZES, max_size=3).map(
    lambda sizes: {role: table(*size) for role, size in zip(ROLES, sizes, strict=False)}
)
GPUS = st.integers(0, 10).map(lambda count: [f"gpu{number}" for number in range(count)])


def least(one: ServerTable) -> int:
    return (one.gpus or 0) * (1 if one.replicas == "fill" else one.replicas)


def needed(tables: Tables, stage: int) -> int:
    return stage + sum(map(least, tables.values()))


@given(GPUS, TABLES, st.integers(0, 2))
def test_every_request_is_met_and_no_gpu_is_given_twice(gpus: list[str], tables: Tables, stage: int) -> None:
    if needed(tables, stage) > len(gpus):
        with pytest.raises(UsageError, match=f"^{needed(tables, stage)} GPUs .* there are {len(gpus)}"):
            place(gpus, tables, stage)
        return
    placed = place(gpus, tables, stage)
    assert list(placed) == list(tables)
    for role, one in tables.items():
        own = placed[role]
        assert len(own) >= least(one) if one.replicas == "fill" else len(own) == least(one)
        assert not one.gpus or len(own) % one.gpus == 0
    used = list(chain.from_iterable(placed.values()))
    left = len(gpus) - len(used)
    assert sorted(used) == gpus[left:], "each GPU once, and the stage has the first ones"
    assert left >= stage


@given(GPUS, TABLES, st.integers(0, 2))
def test_what_grows_leaves_no_room_for_another_and_is_divided_evenly(
    gpus: list[str], tables: Tables, stage: int
) -> None:
    growing = {role: one.gpus for role, one in tables.items() if one.replicas == "fill" and one.gpus}
    if needed(tables, stage) > len(gpus) or not growing:
        return
    placed = place(gpus, tables, stage)
    left = len(gpus) - sum(map(len, placed.values()))
    assert left - stage < min(growing.values())
    counts = {each: [len(placed[role]) // each for role, same in growing.items() if same == each]
              for each in growing.values()}  # fmt: skip
    assert all(max(same) - min(same) <= 1 for same in counts.values())


@given(GPUS, TABLES, TABLES)
def test_the_servers_of_the_first_request_stay_where_they_are(gpus: list[str], others: Tables, later: Tables) -> None:
    others, later = others | {"sim": table(1, 2)}, later | {"sim": table(1, 2)}
    others, later = ({role: tables[role] for role in ROLES if role in tables} for tables in (others, later))
    if max(needed(others, 0), needed(later, 1)) > len(gpus):
        return
    before, after = place(gpus, others), place(gpus, later, 1)
    assert before["sim"] == after["sim"]


def test_the_error_says_what_is_lacking() -> None:
    tables: Tables = {"sim": table(4, 1), "agent": table(2, None), "judge": table(0, 3)}
    with pytest.raises(UsageError) as error:
        place(range(6), tables, 1)
    assert str(error.value).startswith(
        "7 GPUs are needed at the same time (1 × 4 for sim, at least 1 × 2 for agent, 1 for the stage itself), and "
        "there are 6. · where: [servers.sim], [servers.agent] · try: fewer gpus or replicas"
    )
