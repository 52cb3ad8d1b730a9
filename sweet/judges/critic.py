"""Critics as judges: a trained critic of the run, or the model that its training starts from (`untrained`).

`load_critic_judge` finds everything through the run's folder, so it can be called on any node that sees it. On the
nodes of a Ray cluster a replica runs on each GPU, or on each node where no node has one (`open_ray_judge`). Replicas
read the critic from the run's folder, which must have the same path on every node. A node that does not find it there
is excluded, and the message names it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import Scheduler
from sweet.device import Device
from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.judges.base import CRITIC_BATCH, Judged
from sweet.learn.rows import Basis, CandidateTurn
from sweet.runs.environment import NODES
from sweet.runs.run import Run
from sweet.stages.base import Reporter, Silent
from sweet.stages.critics import CriticSettings, load_critic, load_untrained
from sweet.stages.meta import TrainedMeta

if TYPE_CHECKING:
    from sweet.learn.critic import Critic

TOO_LONG = "with the opening and the training-time information the turn is longer than the critic's --max-length"
"""Why a critic cannot judge a turn."""


class CriticJudge:
    """A critic that runs in a thread, so that sampling continues meanwhile (implements `Judge`)."""

    batch_size, max_calls = CRITIC_BATCH, 1

    def __init__(self, critic: Critic, basis: Basis) -> None:
        self.critic, self.basis, self.reader = critic, basis, critic.reader

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        return await asyncio.to_thread(self.judge_now, turns)

    def judge_now(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        """Judge in the calling thread."""
        judged = zip(turns, self.critic.judge(turns), strict=True)
        return [(self.basis, list(candidates) or [TOO_LONG] * len(turn.all_replies)) for turn, candidates in judged]


def load_critic_judge(
    path: Path, critic: str | None, start: str | None, settings: CriticSettings, reporter: Reporter
) -> CriticJudge:
    """Load a critic of the run at `path`, or the model that critics start from; see `load_critic` for the errors.

    Args:
        critic: id of its artifact; None for the untrained model, `start`.
    """
    if critic is None:
        assert start is not None
        return CriticJudge(load_untrained(start, settings), "untrained")
    run = Run.open(path)
    artifact = run.find("critic", critic, needed_by="rank")
    meta = TrainedMeta.of(artifact)
    basis: Basis = "summed" if meta.normalize == "none" else "critic"
    if meta.variant == "regression":
        basis = "regression"
    return CriticJudge(load_critic(run, artifact, reporter, settings), basis)


# On the nodes of a Ray cluster ----------------------------------------------------------------------------------------

BATCHES_IN_FLIGHT = 2
"""Batches that a replica has at a time: the one that it judges, and the next."""

LoadCritic = Callable[[Reporter], CriticJudge]
"""Loads the critic where it is called; is pickled and sent to the nodes."""

_Batch = list[CandidateTurn]
_BatchResult = tuple[list[Judged], int]
"""The judged turns of a batch, and how many early turns were omitted from it."""


class RayJudge:
    """Sends batches to the replicas (implements `sweet.judges.base.Judge`).

    Attributes:
        dropped: early turns that were omitted so far, on all nodes.
    """

    batch_size = CRITIC_BATCH

    def __init__(self, scheduler: Scheduler[_Batch, _BatchResult]) -> None:
        self._scheduler = scheduler
        self.dropped = 0
        # Twice as many as the replicas take, so that nodes that join later find work too.
        self.max_calls = 2 * BATCHES_IN_FLIGHT * max(1, scheduler.worker_count)

    @property
    def max_length(self) -> int | None:
        """Tokens of a scored sequence at most."""
        lengths = (node["max_length"] for node in self._scheduler.node_info.values())
        return next((int(length) for length in lengths if length), None)

    @property
    def environment(self) -> dict[str, Any]:
        """The batches and the device of each node, for the attempt's environment."""
        return {NODES: self._scheduler.record("device")}

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        [(judged, dropped)] = await asyncio.wrap_future(self._scheduler.submit([list(turns)]))
        self.dropped += dropped
        return judged


@contextmanager
def open_ray_judge(address: str, load: LoadCritic, device: Device, say: Callable[[str], None]) -> Iterator[RayJudge]:
    """Load the critic on the nodes of the cluster.

    Raises:
        SweetError: there is no cluster, or no node can load the critic.
    """
    with open_cluster(address) as cluster:
        gpus = device != "cpu" and any(node.gpus for node in cluster.nodes())
        if device == "cuda" and not gpus:
            raise UsageError("No node of the cluster gives a GPU.", where="--device cuda", fix="--device auto")
        opening = partial(_open_on_node, load, device)
        scheduler = Scheduler[_Batch, _BatchResult](
            cluster, opening, chunks_per_worker=BATCHES_IN_FLIGHT, gpus=gpus, say=say
        )
        with scheduler:
            yield RayJudge(scheduler)


@contextmanager
def _open_on_node(load: LoadCritic, device: Device, cores: int) -> Iterator[_Replica]:
    yield _Replica(load(Silent()), str(resolve_device(device)), cores)


class _Replica:
    """A critic on a node (implements `sweet.cluster.worker.Work`), which judges one batch at a time."""

    def __init__(self, judge: CriticJudge, device: str, cores: int) -> None:
        self._judge, self._cores, self._lock = judge, cores, threading.Lock()
        self.info = {"device": device, "max_length": judge.reader.max_length}

    def results(self, items: Sequence[_Batch]) -> list[_BatchResult]:
        import torch

        results = []
        with self._lock:
            torch.set_num_threads(self._cores)  # it counts for the thread that calls it
            for turns in items:
                dropped_before = self._judge.reader.dropped
                results.append((self._judge.judge_now(turns), self._judge.reader.dropped - dropped_before))
        return results
