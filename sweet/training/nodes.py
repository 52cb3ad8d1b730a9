"""`sweet train-critic|train-actor --node-rank 1` and above: another node's training, helped.

Node 0 reads the data, keeps the manifest and writes the model. The others are told their work through its folder.
"""

from __future__ import annotations

import time

from sweet.learn.multinode import POLL_INTERVAL, Rendezvous, run_node, wait_for_job
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.training.config import TrainConfig
from sweet.training.layout import layout_of
from sweet.training.trainer import RANKS

PATIENCE = 30.0
"""Seconds that node 0 has to finish its artifact once the ranks are done."""


def take_part(run: Run, config: TrainConfig, stage: str, kind: Kind, reporter: Reporter) -> StageResult:
    """Do this node's part of the training that node 0 begins in the same run.

    Raises:
        UsageError: options that do not go together, or this node cannot take part.
        SweetError: node 0 does not come, or a node failed.
    """
    layout_of(config)  # which checks the options
    nodes, rank = config.nnodes or 0, config.node_rank or 0
    reporter.say(f"Node {rank} of {nodes}: waiting for node 0 to begin in {run.path}.")
    folder = wait_for_job(run.path / kind, f"*/{RANKS}", nodes)
    told = Rendezvous.read(folder)
    log = told.log.with_suffix(f".{rank}.log")
    reporter.say(f"Takes part in {folder.parent.name}, with {told.master}; what its ranks say is in {log}.")
    began = time.monotonic()
    ranks = run_node(folder, rank, config.devices, log)
    metrics = {"node": rank, "nodes": nodes, "ranks": ranks, "seconds": round(time.monotonic() - began, 3)}
    return StageResult(stage, run.path, metrics, _made(run, folder.parent.name))


def _made(run: Run, name: str) -> list[Artifact]:
    """The artifact that node 0 finishes now; nothing where that takes it long."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        if found := [
            artifact for artifact in run.manifest().artifacts if (artifact.id, artifact.status) == (name, "done")
        ]:
            return found
        time.sleep(POLL_INTERVAL)
    return []
