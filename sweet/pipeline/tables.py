"""The tables of servers in a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sweet.llm.base import STARTUP_TIMEOUT, Role
from sweet.llm.local import RESERVED_OPTIONS
from sweet.llm.vllm import PARALLEL_OPTIONS, REPLICAS, option_value
from sweet.stages.base import Table

_CHOSEN = (*((name,) for name in RESERVED_OPTIONS), *PARALLEL_OPTIONS, REPLICAS, ("--served-model-name",))


class ServerTable(Table):
    """A table [servers.sim], [servers.agent] or [servers.judge] of a recipe. The model is the one that the role has."""

    gpus: int | None = Field(default=None, ge=0)
    """GPUs of each replica, over which vllm distributes the model; default: 1, or 0 where there are none."""
    replicas: Annotated[int, Field(ge=1)] | Literal["fill"] = 1
    """Replicas of the model, among which vllm distributes the requests; fill: as many as there are free GPUs for."""
    port: int = Field(default=0, ge=0, le=65535)
    """Its port; 0 for a free one."""
    options: list[str] = Field(default_factory=list)
    """Options for vllm, passed unchanged."""
    startup_timeout: float = Field(default=STARTUP_TIMEOUT, gt=0)
    """Seconds until a server that was started must answer, from the end of its download."""

    @model_validator(mode="after")
    def _does_not_choose_twice(self) -> Self:
        for names in _CHOSEN:
            if option_value(self.options, *names) is not None:
                raise ValueError(f"{names[0]} is chosen by gpus, replicas and port: omit it from options")
        return self

    def gpus_each(self, available: Sequence[object]) -> int:
        """Return the GPUs of each replica, where these are available."""
        return int(bool(available)) if self.gpus is None else self.gpus


class ServersTable(Table):
    """The table [servers] of a recipe. A role without a server is run by `--local-engine`."""

    sim: ServerTable | None = None
    """The simulated human."""
    agent: ServerTable | None = None
    """The agent: the starting model, then each actor."""
    judge: ServerTable | None = None
    """The language model that judges (`judge = "llm"` in [rank], [rollout] or [evaluation])."""

    def by_role(self) -> dict[Role, ServerTable]:
        """Return the tables that were given."""
        tables: dict[Role, ServerTable | None] = {"sim": self.sim, "agent": self.agent, "judge": self.judge}
        return {role: table for role, table in tables.items() if table is not None}
