"""The tier `docker`: its command line, the reasons why it does not work, and the streams to its zygote.

The streams are tested with a stand-in engine that runs a container's command unchanged; the jail itself is tested by
all the tests that run under every tier, if there is an engine with the image.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweet.sandbox.container import IMAGE_VARIABLE, engine_fault, image, run_arguments
from sweet.sandbox.jail import JailError
from sweet.sandbox.pool import open_jails
from sweet.sandbox.program import Limits, Program
from sweet.sandbox.tiers import probe_tier

HONEST = Program("def f(x):\n    return x + 1", ("f(1)", "f(2)"))

STANDS_IN = f"""#!/bin/sh
[ "$1" = image ] && exit 0
[ "$1" = run ] || exit 1
while [ "$1" != --entrypoint ]; do shift; done
shift 3
exec {sys.executable} "$@"
"""
NO_ENGINE = '#!/bin/sh\necho "Cannot connect to the Docker daemon." >&2\nexit 1\n'
NO_IMAGE = '#!/bin/sh\n[ "$1" = image ] && echo "Error: No such image: x" >&2\nexit 1\n'
BREAKS = '#!/bin/sh\n[ "$1" = image ] && exit 0\necho "docker: unknown flag: --pull" >&2\nexit 125\n'


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The file that is run as docker."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    probe_tier.cache_clear()
    yield tmp_path / "docker"
    probe_tier.cache_clear()


def be(engine: Path, script: str) -> None:
    engine.write_text(script)
    engine.chmod(0o755)


def test_the_command_line_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IMAGE_VARIABLE, "mine:1")
    limits = Limits(memory_bytes=256 << 20, tasks=50)
    arguments = run_arguments("sweet-x", limits)
    assert arguments[0] == "run"
    pairs = set(itertools.pairwise(arguments))
    assert pairs >= {
        ("--pull", "never"),
        ("--network", "none"),
        ("--ipc", "none"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--user", "65534:65534"),
        ("--memory", str(384 << 20)),
        ("--memory-swap", str(384 << 20)),
        ("--pids-limit", "58"),
        ("--env", "PYTHONHASHSEED=0"),
        ("--entrypoint", "python3"),
        ("python3", "mine:1"),
    }
    assert {"--read-only", "--rm", "--interactive"} <= set(arguments)
    assert not {"--volume", "-v", "--mount", "--privileged"} & set(arguments)


def test_the_image_is_that_of_the_running_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IMAGE_VARIABLE, raising=False)
    assert image() == f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"


@pytest.mark.parametrize(
    ("script", "detail", "fix"),
    [
        (NO_ENGINE, "Cannot connect to the Docker daemon.", "systemctl start docker"),
        (NO_IMAGE, "there is no image", "docker pull "),
        (BREAKS, "unknown flag", IMAGE_VARIABLE),
    ],
)
def test_the_reason_why_it_does_not_work_is_reported(engine: Path, script: str, detail: str, fix: str) -> None:
    be(engine, script)
    status = probe_tier("docker")
    assert not status.works
    assert detail in status.detail
    assert fix in (status.fix or "")


def test_a_missing_docker_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fault = engine_fault()
    assert fault is not None
    assert fault[0] == "docker is not installed"
    with pytest.raises(JailError, match="not installed"), open_jails("docker", 1, Limits()) as box:
        box.run([HONEST])


def test_an_engine_without_isolation_is_detected(engine: Path) -> None:
    be(engine, STANDS_IN)
    status = probe_tier("docker")
    assert not status.works
    assert "reading" in status.detail


def test_programs_and_results_are_sent_over_the_streams(engine: Path) -> None:
    be(engine, STANDS_IN)
    large = Program("def f():\n    return 'x' * 200000", ("f()",))
    flood = Program(
        "import os\ndef f():\n    for fd in range(3, 64):\n        try: os.write(fd, bytes(1 << 20))\n"
        "        except OSError: pass",
        ("f()",),
    )
    hang = Program("while True: pass", ("1",))
    leave = Program("import os\ndef f(): os._exit(3)", ("f()",))
    limits = Limits(call_seconds=1.0)
    with open_jails("docker", 2, limits) as box:
        executions = box.run([HONEST] * 20 + [large, flood, hang, leave] + [HONEST] * 20)
    assert [execution.results[0].status for execution in executions[20:24]] == ["value", "crash", "timeout", "crash"]
    assert executions[20].results[0].value == "x" * 200000
    assert "status 3" in executions[23].results[0].message
    assert [[r.value for r in e.results] for e in executions[:20] + executions[24:]] == [[2, 3]] * 40


def test_a_container_that_is_gone_is_replaced(engine: Path) -> None:
    be(engine, STANDS_IN)
    with open_jails("docker", 1, Limits()) as box:
        box.run([HONEST])
        (worker,) = box._workers
        assert worker.jails["bare"].root is None
        worker.jails["bare"]._process.kill()
        assert [result.value for result in box.run([HONEST])[0].results] == [2, 3]
