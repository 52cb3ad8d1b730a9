"""A stand-in for a Ray cluster in this process: its actors are objects, and each call runs in a thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sweet.cluster.nodes import Node

SCHEDULING = "ray.util.scheduling_strategies"


class RayError(Exception):
    """Stands for `ray.exceptions.RayError`."""


class Reference(Future[Any]):
    """The result of a call, which can be awaited."""

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()


class Actor:
    """An object on a node, whose methods have `remote`."""

    def __init__(self, made: Any, node: str) -> None:
        self.made, self.node, self.calls = made, node, list[Reference]()

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *given: self._call(getattr(self.made, name), given))

    def _call(self, method: Callable[..., Any], given: tuple[Any, ...]) -> Reference:
        reference = Reference()
        self.calls.append(reference)

        def run() -> None:
            found = method(*given)
            with suppress(InvalidStateError):  # the actor was killed
                reference.set_result(found)

        threading.Thread(target=run, daemon=True).start()
        return reference

    def kill(self) -> None:
        for reference in self.calls:
            with suppress(InvalidStateError):
                reference.set_exception(RayError("The actor died."))


class StandInCluster:
    """A cluster of nodes with one CPU each, and its `ray`; `lose` takes a node away."""

    address = "stand-in"
    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, number: int) -> None:
        self.ray = self
        self.listed: list[Node] = []
        self.actors: list[Actor] = []
        for _ in range(number):
            self.add()

    def nodes(self) -> list[Node]:
        return list(self.listed)

    def add(self) -> None:
        number = len(self.listed)
        self.listed.append(Node(f"id-{number}", f"node {number}", 1, 0))

    def lose(self, number: int) -> None:
        gone = self.listed.pop(number)
        for actor in self.actors:
            if actor.node == gone.id:
                actor.kill()

    def remote(self, made: type) -> Any:
        def options(**given: Any) -> Any:
            return SimpleNamespace(remote=partial(self._make, made, given["scheduling_strategy"].node_id))

        return SimpleNamespace(options=options)

    def kill(self, actor: Actor) -> None:
        actor.kill()

    def _make(self, made: type, node: str, *arguments: Any) -> Actor:
        self.actors.append(Actor(made(*arguments), node))
        return self.actors[-1]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what the scheduler imports of Ray."""
    module = ModuleType(SCHEDULING)
    vars(module)["NodeAffinitySchedulingStrategy"] = lambda node, soft: SimpleNamespace(node_id=node, soft=soft)
    for name in ("ray", "ray.util"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, SCHEDULING, module)
