"""A sandbox of each tier that this machine has; the tests here run against all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Limits, Program, Result
from sweet.sandbox.tiers import SAFE_TIERS, open_sandbox, probe_tier

settings.register_profile("beside-hostile-answers", deadline=None)  # they keep every core busy
settings.load_profile("beside-hostile-answers")

TIERS = [tier for tier in SAFE_TIERS if probe_tier(tier).works]

Runner = Callable[..., Result]


@pytest.fixture(scope="session", params=SAFE_TIERS)
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param not in TIERS:
        pytest.skip(f"{request.param}: {probe_tier(request.param).detail}")
    limits = Limits(call_seconds=1.0, total_seconds=4.0, memory_bytes=256 * 2**20, value_bytes=64 * 2**10)
    with open_sandbox(request.param, workers=1, limits=limits) as sandbox:
        yield sandbox


@pytest.fixture
def call(box: Sandbox) -> Runner:
    """`call(source, expression="f()")`: the result of one call."""

    def run(source: str, expression: str = "f()") -> Result:
        (execution,) = box.run([Program(source, (expression,))])
        return execution.results[0]

    return run
