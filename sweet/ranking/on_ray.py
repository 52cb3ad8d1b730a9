"""Ranking on the nodes of a Ray cluster: a replica of the critic on each GPU, or on each node where there are none.

Replicas read the critic from the run's folder, which must be at the same place on every node; one that does not find it
there is left out by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import Spread
from sweet.device import Device
from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.ranking.judge import SCORED_TOGETHER, CriticJudge, Judged, SampledTurn
from sweet.runs.environment import NODES
from sweet.stages.base import Reporter, Silent

AT_ONCE = 2
"""Batches that a replica has: one that it reads, and the next."""

Load = Callable[[Reporter], CriticJudge]
"""Loads the critic where it is called; goes to the nodes by pickle."""

_Batch = list[SampledTurn]
_Told = tuple[list[Judged], int]
"""What was said of a batch, and early turns left out of it."""


class SpreadJudge:
    """Implements `sweet.ranking.judge.Judge`.

    Attributes:
        dropped: early turns that were left out, on all nodes.
        gpus: that replicas hold.
    """

    together = SCORED_TOGETHER

    def __init__(self, spread: Spread[_Batch, _Told], gpus: int) -> None:
        self._spread, self.gpus = spread, gpus
        self.dropped = 0
        self.at_once = 2 * AT_ONCE * max(1, spread.benches)  # twice, so that who joins later finds work too

    @property
    def max_length(self) -> int | None:
        """See `sweet.ranking.judge.Reads`."""
        return next((int(told["max_length"]) for told in self._spread.told.values() if told["max_length"]), None)

    @property
    def environment(self) -> dict[str, Any]:
        """What each node judged: batches, and on what device."""
        return {NODES: self._spread.record("device")}

    async def judge(self, turns: Sequence[SampledTurn]) -> list[Judged]:
        [(judged, dropped)] = await asyncio.wrap_future(self._spread.submit([list(turns)]))
        self.dropped += dropped
        return judged


@contextmanager
def open_spread_judge(address: str, load: Load, device: Device, say: Callable[[str], None]) -> Iterator[SpreadJudge]:
    """Load the critic on the nodes of the cluster.

    Raises:
        SweetError: there is no cluster, or no node that can load it.
    """
    with open_cluster(address) as cluster:
        gpus = device != "cpu" and any(node.gpus for node in cluster.nodes())
        if device == "cuda" and not gpus:
            raise UsageError("No node of the cluster gives a GPU.", where="--device cuda", fix="--device auto")
        opening = partial(_open_on_node, load, device)
        with Spread[_Batch, _Told](cluster, opening, at_once=AT_ONCE, gpus=gpus, say=say) as spread:
            yield SpreadJudge(spread, spread.benches if gpus else 0)


@contextmanager
def _open_on_node(load: Load, device: Device, cores: int) -> Iterator[_Judging]:
    import torch

    torch.set_num_threads(cores)
    yield _Judging(load(Silent()), str(resolve_device(device)))


class _Judging:
    """Implements sweet.cluster.worker.Work."""

    def __init__(self, judge: CriticJudge, device: str) -> None:
        self._judge = judge
        self.told = {"device": device, "max_length": judge.max_length}

    def results(self, items: Iterable[_Batch]) -> Iterator[_Told]:
        for turns in items:
            before = self._judge.dropped
            judged = self._judge.judge_now(turns)
            yield judged, self._judge.dropped - before
