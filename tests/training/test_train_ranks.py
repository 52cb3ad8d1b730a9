"""`--engine deepspeed`: child ranks end with the command, resume, and report an error once."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import Interrupted, SweetError, UsageError
from sweet.learn import distributed
from sweet.learn.components import Example, Objective
from sweet.learn.distributed import Layout, read_hostfile
from sweet.learn.estimate import ZeroSettings
from sweet.learn.job import Job, checkpoint_path, stop_path, train_in_ranks
from sweet.learn.launcher import error_path
from sweet.learn.loop import LoopSettings
from sweet.learn.sequences import Span, TokenSequence
from sweet.learn.trainee import Start
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.checkpoints import RANKS
from sweet.training.config import TrainConfig, TrainCriticConfig
from sweet.training.layout import layout_of
from sweet.training.stage import run_train_critic
from tests import programs
from tests.learn.builders import assert_trained_alike
from tests.stages.learn_runs import make_agent, make_run

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found under /proc")

PATIENCE = 120.0


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path, make_agent(tmp_path / "agent", layers=2))
    run_label(run, LabelConfig(), Silent())
    return run


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def make_job(agent: str, folder: Path, **changes: Any) -> Job:
    """A job over two dialogues that any agent of these tests can read."""
    pool = [TokenSequence(tuple(range(20, 30 + number)), (Span(4, 9, 1),)) for number in range(4)]
    fields: dict[str, Any] = {
        "start": Start(agent),
        "output": folder / "out",
        "device": "cpu",
        "zero": ZeroSettings(2),
        "settings": LoopSettings(lr=1e-3, epochs=1, batch=2),
        "objective": Objective(0.1, 0.1),
        "digest": "d",
        "resume": False,
        "pool": pool,
        "examples": [Example("a", (0,), (1,)), Example("b", (2,), (3,))],
        "heldout": [],
    }
    return Job(**(fields | changes))


def processes_about(path: Path) -> list[int]:
    """Living processes that have a path below `path` among their arguments, but this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if str(path).encode() in (entry / "cmdline").read_bytes() and state != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until(what: Any) -> None:
    ends = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < ends, "nothing came of it"
        time.sleep(0.1)


@needs_deepspeed
@linux
def test_a_killed_training_leaves_no_rank_and_resumes_to_the_same_result_as_one_process(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--epochs", "3", "--batch", "2", "--lr", "1e-3", "--save-every", "2"]
    many = ["--engine", "deepspeed", "--devices", "2", "--zero", "2"]
    words = [*programs.SWEET, "train-critic", str(run.path), *options, *many]
    nowhere = subprocess.DEVNULL
    with programs.start(words, executable=sys.executable, stdout=nowhere, stderr=nowhere) as process:
        kept = checkpoint_path(run.path / "critic" / "critic-1" / RANKS)
        try:
            wait_until(lambda: kept.exists() or process.poll() is not None)
        finally:
            process.kill()
    wait_until(lambda: not processes_about(run.path))
    partial = run.manifest().artifacts[-1]
    assert (partial.id, partial.status) == ("critic-1", "partial")

    config = TrainCriticConfig(epochs=3, batch=2, lr=1e-3, save_every=2)
    with pytest.raises(UsageError, match="started by several ranks"):
        run_train_critic(run, config.model_copy(update={"resume": True}), Silent())
    monkeypatch.setattr(sys, "executable", programs.interpreter())  # no rank is killed from here on
    several = {"engine": "deepspeed", "devices": 2, "zero": 2, "resume": True}
    resumed = run_train_critic(run, config.model_copy(update=several), Silent())
    whole = run_train_critic(run, config, Silent())
    assert resumed.artifacts[0].id == "critic-1"
    for name in ("steps", "loss", "accuracy", "margin", "parameters", "examples"):
        assert getattr(resumed.metrics, name) == pytest.approx(getattr(whole.metrics, name), rel=1e-4, abs=1e-4)
    first, second = (run.file(result.artifacts[0]) for result in (resumed, whole))
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
    assert json.loads((first / "config.json").read_text()) == json.loads((second / "config.json").read_text())

    from sweet.llm.pretrained import load_model, load_tokenizer

    one, other = (load_model(str(p), "cpu", tokenizer=load_tokenizer(str(p))) for p in (first, second))
    for name, weights in one.state_dict().items():
        assert_trained_alike(weights, other.state_dict()[name], name)


@needs_deepspeed
@pytest.mark.usefixtures("forked_python")
def test_an_error_of_one_rank_ends_all_and_is_reported_once(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent", layers=2)
    job = make_job(agent, tmp_path)
    # The model knows no such token, and one rank alone meets it.
    broken = TokenSequence((20, 21, 10**6, 23), (Span(2, 3, 1),))
    examples = [Example("a", (0,)), Example("b", (4,))]
    changes = {"pool": [*job.pool, broken], "examples": examples, "objective": Objective(None, 1.0)}
    log = tmp_path / "log"
    with pytest.raises(
        SweetError, match=rf"Rank [01] on {re.escape(socket.gethostname())} failed: IndexError"
    ) as caught:
        train_in_ranks(make_job(agent, tmp_path, **changes), Layout(2), tmp_path / RANKS, log, lambda _record: None)
    assert caught.value.where == str(log)
    assert "Traceback" in log.read_text()
    assert not processes_about(tmp_path)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Another program in the place of the launcher; to be filled with its text."""
    text: list[str] = []
    monkeypatch.setattr(
        distributed,
        "launch_commands",
        lambda layout, folder, port, program: {"the launcher": [sys.executable, "-c", *text, str(folder)]},
    )
    return text


@linux
def test_an_interruption_ends_the_launcher(tmp_path: Path, launcher: list[str]) -> None:
    launcher.append(
        "import sys, time; open(sys.argv[1] + '/progress.jsonl', 'w').write('{\"record\": {\"step\": 1}}\\n');"
        "time.sleep(100)"
    )

    def interrupt(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train_in_ranks(make_job("x", tmp_path), Layout(2), tmp_path / RANKS, tmp_path / "log", interrupt)
    assert time.monotonic() - began < PATIENCE / 4
    assert not processes_about(tmp_path)


@linux
def test_a_signal_asks_the_ranks_to_stop_after_their_step(tmp_path: Path, launcher: list[str]) -> None:
    launcher.append(
        "import os, sys, time\n"
        "file = open(sys.argv[1] + '/progress.jsonl', 'w')\n"
        'print(\'{"record": {"step": 1}}\', file=file, flush=True)\n'
        "while not os.path.exists(sys.argv[1] + '/stop'): time.sleep(0.05)\n"
        'print(\'{"stopped": "Stopped after step 2."}\', file=file, flush=True)\n'
    )

    def interrupt(record: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)

    stop_path(tmp_path / RANKS).parent.mkdir()
    stop_path(tmp_path / RANKS).touch()  # of an earlier call
    with pytest.raises(Interrupted, match=r"Stopped after step 2\."):
        train_in_ranks(make_job("x", tmp_path), Layout(2), tmp_path / RANKS, tmp_path / "log", interrupt)
    assert not processes_about(tmp_path)


def test_a_dead_launcher_is_reported_with_its_last_lines(tmp_path: Path, launcher: list[str]) -> None:
    launcher.append("import sys; sys.exit('no such host')")
    with pytest.raises(SweetError, match=r"status 1 (?s:.*)no such host"):
        train_in_ranks(make_job("x", tmp_path), Layout(2), tmp_path / RANKS, tmp_path / "log", lambda _record: None)


def test_of_several_errors_the_meaningful_one_is_reported(tmp_path: Path, launcher: list[str]) -> None:
    errors = {
        0: {"what": "RuntimeError: connection closed", "usage": False, "known": False, "time": 1.0},
        1: {"what": "The checkpoint is not whole.", "usage": True, "known": True, "time": 2.0, "fix": "anew"},
    }
    for rank, error in errors.items():
        error |= {"rank": rank, "host": "node-a"}
    launcher.append(
        "import json, sys\n"
        f"for rank, error in {errors!r}.items():\n"
        "    open(f'{sys.argv[1]}/error-{rank}.json', 'w').write(json.dumps(error))\n"
        "sys.exit(1)"
    )
    stale = error_path(tmp_path / RANKS, 7)
    stale.parent.mkdir()
    stale.write_text("of another time")
    with pytest.raises(UsageError, match="not whole") as caught:
        train_in_ranks(make_job("x", tmp_path), Layout(2), tmp_path / RANKS, tmp_path / "log", lambda _record: None)
    assert (caught.value.where, caught.value.fix) == ("rank 1 on node-a", "anew")


def test_a_job_survives_its_file_unchanged(tmp_path: Path) -> None:
    job = make_job("micro", tmp_path, heldout=[Example("c", (3,), (0, 1))])
    job.write(tmp_path)
    assert Job.read(tmp_path) == job


def test_a_missing_deepspeed_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed") as caught:
        layout_of(TrainConfig(engine="deepspeed"))
    assert caught.value.fix == "pip install '.[gpu]' in the checkout of sweet"


def test_a_deepspeed_that_computes_wrong_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: object())
    wrong = {"deepspeed": "deepspeed 0.19.7 (allowed: >=0.19.8,<0.20)"}
    monkeypatch.setattr(distributed, "unsuitable_versions", lambda: wrong)
    with pytest.raises(UsageError, match=r"another version of deepspeed: deepspeed 0\.19\.7"):
        layout_of(TrainConfig(engine="deepspeed"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"devices": 2}, "--devices"),
        ({"zero": 1, "offload": "all"}, "--zero, --offload"),
        ({"hostfile": Path("hosts")}, "--hostfile"),
    ],
)
def test_the_torch_engine_refuses_options_of_deepspeed(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match="one device") as caught:
        layout_of(TrainConfig(**options))
    assert caught.value.where == named


@pytest.mark.parametrize(("zero", "offload"), [(0, "optimizer"), (2, "all")])
def test_offloading_needs_a_high_enough_zero_stage(monkeypatch: pytest.MonkeyPatch, zero: int, offload: Any) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: object())
    with pytest.raises(UsageError, match="cannot offload"):
        layout_of(TrainConfig(engine="deepspeed", zero=zero, offload=offload))
    assert layout_of(TrainConfig(engine="deepspeed", offload=offload, device="cpu", devices=3)) == Layout(3)


def test_a_hostfile_is_checked_by_line(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# two nodes\nnode-1 slots=8\n\nnode-2   slots=8\n")
    assert read_hostfile(path) == {"node-1": 8, "node-2": 8}
    for text, words in (
        ("node-1 slots=8\nnode-2\n", "node-2"),
        ("-oProxyCommand=x slots=1", "Not a host"),
        ("\n", "no host"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            read_hostfile(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_hostfile(tmp_path / "none")
