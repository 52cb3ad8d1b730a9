"""Divides the visible GPUs among the servers of a phase and the stage that uses them.

The stage gets the first GPUs, the servers those from the end: a stage that computes in the process of `sweet train`
uses the first GPU, and holds some of its memory afterwards. The requests are placed in their order, so the servers of
the first request are on the same GPUs in every phase and can keep running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sweet.errors import UsageError

R = TypeVar("R", bound=str)
G = TypeVar("G")


@dataclass(frozen=True)
class Request(Generic[R]):
    """The GPUs that the server of a role needs.

    Attributes:
        gpus: of each replica of the model; 0 if it needs none.
        replicas: number of replicas; None for as many as fit, and at least one.
    """

    role: R
    gpus: int
    replicas: int | None = 1


@dataclass(frozen=True)
class Placement(Generic[R, G]):
    """Attributes:
    servers: for each role the GPUs of its server, those of all replicas.
    stage: the GPUs that are left for the stage.
    """

    servers: Mapping[R, list[G]]
    stage: list[G]


def place(gpus: Sequence[G], requests: Sequence[Request[R]], stage: int = 0) -> Placement[R, G]:
    """Divide GPUs.

    Args:
        gpus: all that may be used.
        requests: of the servers, in the order of placement.
        stage: GPUs that the stage needs at least.

    Raises:
        UsageError: there are too few; says how many of what are needed.
    """
    counts = {request.role: request.replicas or 1 for request in requests}
    left = len(gpus) - stage - sum(request.gpus * counts[request.role] for request in requests)
    if left < 0:
        raise _too_few(len(gpus), requests, stage)
    growing = [request for request in requests if request.replicas is None and request.gpus]
    while growing:  # one more replica of each in turn, so that none takes all
        growing = [request for request in growing if request.gpus <= left]
        for request in growing:
            if request.gpus <= left:
                counts[request.role] += 1
                left -= request.gpus
    servers: dict[R, list[G]] = {}
    end = len(gpus)
    for request in requests:
        start = end - request.gpus * counts[request.role]
        servers[request.role] = list(gpus[start:end])
        end = start
    return Placement(servers, list(gpus[:end]))


def _too_few(available: int, requests: Sequence[Request[R]], stage: int) -> UsageError:
    parts = [
        f"{request.replicas or 'at least 1'} × {request.gpus} for {request.role}"
        for request in requests
        if request.gpus
    ]
    parts += [f"{stage} for the stage itself"] if stage else []
    needed = stage + sum(request.gpus * (request.replicas or 1) for request in requests)
    return UsageError(
        f"{needed} GPUs are needed at the same time ({', '.join(parts)}), and there are {available}.",
        where=", ".join(f"[servers.{request.role}]" for request in requests if request.gpus),
        fix="fewer gpus or replicas, or the address of a server elsewhere (url); nvidia-smi and CUDA_VISIBLE_DEVICES "
        "say which GPUs there are",
    )
