"""Placement of servers on GPUs: properties over all small requests."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.pipeline.servers import ROLES, Request, place

SIZES = st.tuples(st.integers(0, 4), st.none() | st.integers(1, 4))
REQUESTS = st.lists(SIZES, max_size=3).map(
    lambda sizes: [Request(role, *size) for role, size in zip(ROLES, sizes, strict=False)]
)
GPUS = st.integers(0, 10).map(lambda count: [f"gpu{number}" for number in range(count)])


def needed(requests: list[Request], stage: int) -> int:
    return stage + sum(request.gpus * (request.replicas or 1) for request in requests)


@given(GPUS, REQUESTS, st.integers(0, 2))
def test_every_request_is_met_and_no_gpu_is_given_twice(gpus: list[str], requests: list[Request], stage: int) -> None:
    if needed(requests, stage) > len(gpus):
        with pytest.raises(UsageError, match=f"^{needed(requests, stage)} GPUs .* there are {len(gpus)}"):
            place(gpus, requests, stage)
        return
    placed = place(gpus, requests, stage)
    assert list(placed) == [request.role for request in requests]
    for request in requests:
        own = placed[request.role]
        least = request.gpus * (request.replicas or 1)
        assert len(own) == least if request.replicas else len(own) >= least
        assert not request.gpus or len(own) % request.gpus == 0
    used = list(chain.from_iterable(placed.values()))
    left = len(gpus) - len(used)
    assert sorted(used) == gpus[left:], "each GPU once, and the stage has the first ones"
    assert left >= stage


@given(GPUS, REQUESTS, st.integers(0, 2))
def test_what_grows_leaves_no_room_for_another_and_is_divided_evenly(
    gpus: list[str], requests: list[Request], stage: int
) -> None:
    growing = [request for request in requests if request.replicas is None and request.gpus]
    if needed(requests, stage) > len(gpus) or not growing:
        return
    placed = place(gpus, requests, stage)
    left = len(gpus) - sum(map(len, placed.values()))
    assert left - stage < min(request.gpus for request in growing)
    counts = {request.gpus: [len(placed[other.role]) // other.gpus for other in growing if other.gpus == request.gpus]
              for request in growing}  # fmt: skip
    assert all(max(same) - min(same) <= 1 for same in counts.values())


@given(GPUS, REQUESTS, REQUESTS)
def test_the_servers_of_the_first_request_stay_where_they_are(
    gpus: list[str], others: list[Request], later: list[Request]
) -> None:
    first = Request("sim", 1, 2)
    others, later = ([one for one in requests if one.role != "sim"] for requests in (others, later))
    if max(needed([first, *others], 0), needed([first, *later], 1)) > len(gpus):
        return
    before, after = place(gpus, [first, *others]), place(gpus, [first, *later], 1)
    assert before["sim"] == after["sim"]


def test_the_error_says_what_is_lacking() -> None:
    requests = [Request("sim", 4, 1), Request("agent", 2, None), Request("judge", 0, 3)]
    with pytest.raises(UsageError) as error:
        place(range(6), requests, 1)
    assert str(error.value).startswith(
        "7 GPUs are needed at the same time (1 × 4 for sim, at least 1 × 2 for agent, 1 for the stage itself), and "
        "there are 6. · where: [servers.sim], [servers.agent] · try: fewer gpus or replicas"
    )
