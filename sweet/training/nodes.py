"""`sweet train-critic|train-actor` with `--node-rank` 1 or above: this node's part of a training that node 0 runs.

Node 0 reads the data, keeps the manifest and writes the model. The other nodes receive their work through the folder of
its artifact.
"""

from __future__ import annotations

import time

from sweet.learn.multinode import POLL_INTERVAL, Rendezvous, run_node, wait_for_job
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.training.config import LayoutOptions
from sweet.training.layout import layout_of
from sweet.training.metrics import TrainMetrics
from sweet.training.trainer import RANKS

ARTIFACT_TIMEOUT = 30.0
"""Seconds to wait for node 0 to finish its artifact once the ranks are done."""


def take_part(
    run: Run, options: LayoutOptions, stage: str, kind: Kind, reporter: Reporter
) -> StageResult[TrainMetrics]:
    """Do this node's part of the training that node 0 starts in the same run.

    Raises:
        UsageError: options do not go together, or this node cannot take part.
        SweetError: node 0 does not start, or a node failed.
    """
    layout_of(options)  # which checks them
    nodes, rank = options.nnodes or 0, options.node_rank or 0
    reporter.say(f"Node {rank} of {nodes}: waiting for node 0 to start in {run.path}.")
    folder = wait_for_job(run.path / kind, f"*/{RANKS}", nodes)
    job = Rendezvous.read(folder)
    log = job.log.with_suffix(f".{rank}.log")
    reporter.say(f"Taking part in {folder.parent.name}, with {job.master}; the output of the ranks is in {log}.")
    began = time.monotonic()
    ranks = run_node(folder, rank, options.devices, log)
    metrics = TrainMetrics(node=rank, nodes=nodes, ranks=ranks, seconds=round(time.monotonic() - began, 3))
    return StageResult(stage, run.path, metrics, _finished_artifact(run, folder.parent.name))


def _finished_artifact(run: Run, name: str) -> list[Artifact]:
    """Wait for the artifact that node 0 finishes; empty where that takes longer than `ARTIFACT_TIMEOUT`."""
    ends = time.monotonic() + ARTIFACT_TIMEOUT
    while time.monotonic() < ends:
        if found := [
            artifact for artifact in run.manifest().artifacts if (artifact.id, artifact.status) == (name, "done")
        ]:
            return found
        time.sleep(POLL_INTERVAL)
    return []
