"""The properties of `benchmarks.fuzz` on a few examples each, and that it finds what is planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.fuzz import Search, replay
from benchmarks.fuzz_targets import TARGETS, CostlyError, bounded

FEW = settings(max_examples=40, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", TARGETS)
def test_the_property_of_each_target_holds(name: str) -> None:
    target = TARGETS[name]

    @FEW
    @given(target.inputs)
    def holds(value: object) -> None:
        assert json.dumps(json.loads(json.dumps(value))) == json.dumps(value), "a finding can be kept"
        with bounded(target.size(value)):
            target.check(value)

    holds()


@pytest.mark.parametrize(
    ("planted", "kind", "place", "minimal"),
    [
        ("WRONG", "exception", "AssertionError at tests/benchmarks/planted.py", 1_000),
        ("ENDLESS", "died", "SIGXCPU at tests/benchmarks/planted.py", None),
        ("DEADLY", "died", "status 3", None),
    ],
)
def test_what_is_planted_is_found(tmp_path: Path, planted: str, kind: str, place: str, minimal: int | None) -> None:
    target = f"tests.benchmarks.planted:{planted}"
    results = Search(target, seed=0, seconds=120.0, keep=tmp_path, cpu_seconds=1).run(once=True)
    (finding,) = results["findings"]
    assert finding["kind"] == kind
    assert finding["place"].startswith(place)
    assert finding["input"] == minimal or (minimal is None and finding["input"] > 1_000)
    kept = json.loads(Path(finding["file"]).read_text())
    assert (kept["input"], kept["target"]) == (finding["input"], target)
    if planted == "WRONG":
        with pytest.raises(AssertionError, match="it is large"):
            replay(Path(finding["file"]))


def test_an_example_that_costs_too_much_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.9, 0.0, 2.2, 0.0, 2.2, 0.0, 0.0])
    monkeypatch.setattr("benchmarks.fuzz_targets.time.process_time", lambda: next(clock))
    with bounded(10):
        pass
    with pytest.raises(CostlyError, match=r"2\.2 s of CPU time for 10 bytes"), bounded(10):
        pass
    with bounded(100_000):
        pass
    with pytest.raises(CostlyError, match="500 MiB for 10 bytes"), bounded(10, lambda: 500.0):
        pass


def test_a_target_without_faults_has_no_findings(tmp_path: Path) -> None:
    results = Search("manifest", seed=0, seconds=120.0, keep=tmp_path, cpu_seconds=20).run(once=True)
    assert results["examples"] > 0
    assert results["findings"] == []
    assert list(tmp_path.iterdir()) == []
