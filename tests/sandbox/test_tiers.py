"""The choice of a tier: by running a jail, never `unsafe` by default, and the error if none works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.sandbox import jail, tiers
from sweet.sandbox.program import Limits, Program, Tier
from sweet.sandbox.syscalls import FilterError
from sweet.sandbox.tiers import TierStatus, open_sandbox, probe_tier, probe_tiers


def test_every_tier_is_probed_and_the_strongest_that_works_is_chosen() -> None:
    statuses = probe_tiers()
    assert [status.name for status in statuses] == ["bwrap", "landlock", "docker", "unsafe"]
    assert all(status.works or status.fix for status in statuses)
    strongest = next((status.name for status in statuses if status.works), None)
    if strongest == "unsafe":
        pytest.skip("no safe tier on this machine")
    with open_sandbox() as box:
        assert box.tier == strongest


def test_a_jail_with_an_escape_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiers.find_escapes("unsafe"), "the probe sees what an open jail allows"
    monkeypatch.setattr(tiers, "find_escapes", lambda tier: ["network"])
    probe_tier.cache_clear()
    try:
        status = probe_tier("bwrap")
        assert not status.works
        assert "network" in status.detail
    finally:
        probe_tier.cache_clear()


def test_nothing_runs_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "probe_tier", lambda tier: TierStatus(tier, False, "refused here", f"mend {tier}"))
    with pytest.raises(SweetError) as caught, open_sandbox("auto"):
        pass
    assert caught.value.exit_code == 1
    assert caught.value.fix == "mend bwrap or mend landlock or mend docker"
    with pytest.raises(UsageError, match="refused here"), open_sandbox("bwrap"):
        pass


def test_a_missing_bubblewrap_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    probe_tier.cache_clear()
    try:
        status = probe_tier("bwrap")
        assert not status.works
        assert status.fix == "apt-get install bubblewrap"
    finally:
        probe_tier.cache_clear()


def test_without_a_filter_bubblewrap_is_used_only_if_the_kernel_limits_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_filter() -> bytes:
        raise FilterError("no libseccomp")

    if not probe_tier("bwrap").works:
        pytest.skip("no bubblewrap")
    for module in (jail, tiers):
        monkeypatch.setattr(module, "seccomp_filters", no_filter)
        monkeypatch.setattr(module, "bounds_processes", lambda: False)
    probe_tier.cache_clear()
    try:
        status = probe_tier("bwrap")
    finally:
        probe_tier.cache_clear()
    assert not status.works
    assert "no libseccomp" in status.detail
    assert "libseccomp2" in (status.fix or "")


@pytest.mark.parametrize("files", [1, 100])
def test_only_libraries_are_shown_of_a_library_folder(
    files: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Few libraries are mounted one by one; a folder with many is mounted whole, its other folders covered."""
    library, package, script = tmp_path / "x86_64-linux-gnu", tmp_path / "python3" / "dist-packages", tmp_path / "tool"
    for folder in (library, package, script):
        folder.mkdir(parents=True)
        (folder / "some.py").write_text("secret = 1")
    for number in range(files):
        (tmp_path / f"lib{number}.so").write_bytes(b"\x7fELF")
    monkeypatch.setattr(jail, "_LIBRARIES", (*jail._LIBRARIES, str(tmp_path)))
    source = "def f(*paths):\n    return [read(path) for path in paths]\n"
    source += "def read(path):\n    try: return len(open(path, 'rb').read())\n    except OSError: return 'hidden'"
    paths = [str(folder / "some.py") for folder in (library, package, script)] + [str(tmp_path / "lib0.so")]
    jailed: tuple[Tier, ...] = ("bwrap", "landlock")
    safe = [tier for tier in jailed if probe_tier(tier).works]
    for tier in safe:
        with open_sandbox(tier, 1) as box:
            (execution,) = box.run([Program(source, (f"f(*{paths!r})",))])
        assert execution.results[0].value == [10, "hidden", "hidden", 4], tier
    if not safe:
        pytest.skip("neither bwrap nor landlock works on this machine")


def test_unsafe_runs_when_requested() -> None:
    with open_sandbox("unsafe", 1, Limits(call_seconds=0.3)) as box:
        programs = [Program("def f(x): return x", (f"f({i})",)) for i in range(20)]
        programs.append(Program("while True: pass", ("1",)))
        executions = box.run(programs)
    assert [e.results[0].value for e in executions[:-1]] == list(range(20))
    assert executions[-1].results[0].status == "timeout"


def test_scoped_programs_see_names_as_the_published_evaluator_does() -> None:
    source = "import math\ndef g(x): return x\ndef f(x): return g(x)\ndef h(x): return abs(x)"
    with open_sandbox("unsafe", 1) as box:
        (execution,) = box.run([Program(source, ("f(1)", "h(-2)", "math.floor(1.5)"), scoped=True)])
        results = [(r.status, r.error, r.value) for r in execution.results]
    assert results == [("raised", "NameError", None), ("value", "", 2), ("value", "", 1)]


def test_calls_do_not_see_each_others_traces() -> None:
    source = "import random\nseen = []\ndef f(x):\n    seen.append(x)\n    return seen, random.random()"
    with open_sandbox("unsafe", 1) as box:
        (execution,) = box.run([Program(source, ("f(1)", "f(1)"))])
    first, second = (json.dumps(result.value) for result in execution.results)
    assert first == second
