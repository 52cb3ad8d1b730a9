"""`sweet train` as a program: killed in the middle and called again, with servers of its own, and its errors."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sweet.runs.run import Run
from tests.llm.stand_in import install
from tests.programs import SWEET, run, start
from tests.stages.chat_server import ChatServer, said

RECIPE = """
[train]
tasks = "micro"
train-tasks = 4
samples = 4
eval-tasks = 4
[rank]
candidates = 2
fraction = 0.1
[train-critic]
epochs = 1
save-every = 1
[train-actor]
epochs = 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


def test_a_call_after_a_kill_ends_in_the_same_artifacts(tmp_path: Path, recipe: Path) -> None:
    """Killed when a stage has begun, or soon after, and once more in a later stage; the ids and rows are those of a run
    that is never stopped."""
    folder = tmp_path / "run"
    stages: dict[str, list[str | Path]] = {"rollout": ["--recipe", recipe], "train-critic": []}
    for stage, words in stages.items():
        with start([*SWEET, "train", folder, *words, "--quiet"], torch=True) as process:
            ends = time.monotonic() + 120
            while not (folder / "logs" / f"{stage}-1.log").exists() and process.poll() is None:
                assert time.monotonic() < ends
                time.sleep(0.02)
            process.kill()
            process.wait()
    again = run([*SWEET, "train", folder, "--json", "--quiet"], torch=True)
    assert again.returncode == 0, again.stderr
    metrics = json.loads(again.stdout)["metrics"]
    assert metrics["best"] == "actor-1"
    manifest = Run.open(folder).manifest()
    assert {artifact.status for artifact in manifest.artifacts} == {"done"}
    ids = {artifact.id for artifact in manifest.artifacts}
    played = {f"{kind}-{number}" for kind in ("rollouts", "scores") for number in (1, 2, 3)}
    assert ids == {*played, "preferences-1", "critic-1", "candidates-1", "pairs-1", "actor-1"}
    rows = {artifact.id: artifact.rows for artifact in manifest.artifacts}
    assert (rows["rollouts-1"], rows["rollouts-2"], rows["scores-3"]) == (4, 16, 4)
    planned = run([*SWEET, "train", folder, "--dry-run"], torch=True)
    assert "train-actor" in planned.stdout
    assert "needs" not in planned.stdout, "it needs nothing any more"


ONLINE = ["--algorithm", "grpo", *(f"--set=train-online.{one}" for one in ("steps=4", "tasks-per-step=2", "group=4"))]


def test_an_online_training_goes_on_after_an_end_in_any_phase(tmp_path: Path) -> None:
    folder, file = tmp_path / "run", tmp_path / "online.toml"
    file.write_text("[train]\ntasks = 'micro'\ntrain-tasks = 16\neval-tasks = 4\n[train-online]\nsave-every = 2\n")
    dialogues, evaluation = folder / "rollouts" / "rollouts-2.jsonl", folder / "logs" / "rollout-2.log"
    # In the online training: in the middle of a step after the first ones, whose dialogues are recorded.
    ends: list[tuple[Path, int, int]] = [(dialogues, 18, signal.SIGKILL), (evaluation, 0, signal.SIGINT)]
    before: list[bytes] = []
    for written, lines, ends_by in ends:
        words: list[str | Path] = [] if before else ["--recipe", file, *ONLINE]
        with start([*SWEET, "train", folder, *words, "--quiet"], torch=True) as process:
            limit = time.monotonic() + 120
            while not written.exists() or written.read_bytes().count(b"\n") < lines:
                assert time.monotonic() < limit
                assert process.poll() is None, "it ended before"
                time.sleep(0.01)
            process.send_signal(ends_by)
            process.wait()
        assert process.returncode != 0
        before = before or dialogues.read_bytes().splitlines()
    again = run([*SWEET, "train", folder, "--json", "--quiet"], torch=True)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["algorithm"] == "grpo"
    manifest = Run.open(folder).manifest()
    kinds = ("rollouts", "scores")
    assert {one.id for one in manifest.artifacts} == {
        *(f"{kind}-{number}" for kind in kinds for number in (1, 2, 3)),
        "actor-1",
    }
    assert {one.status for one in manifest.artifacts} == {"done"}
    rows = dialogues.read_bytes().splitlines()
    assert len(rows) == 32
    assert rows[: len(before)] == before, "no dialogue is played twice"


def test_the_loop_starts_and_ends_the_servers_of_its_recipe(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = install(tmp_path, monkeypatch)
    recipe.write_text(RECIPE.replace("[rank]", 'sim = "org/human"\n[servers.sim]\n[rank]'))
    outcome = run([*SWEET, "train", tmp_path / "run", "--recipe", recipe], torch=True)
    assert "The server of the simulated human answers at http://127.0.0.1" in outcome.stderr
    (rollouts, *_) = Run.open(tmp_path / "run").manifest().of_kind("rollouts")
    assert (rollouts.meta["sim"], rollouts.status) == ("org/human", "done")
    assert len(vllm.starts()) == 1, "one for the evaluation and the dialogues to learn from"
    assert vllm.all_gone()


def test_a_task_that_cannot_be_scored_is_found_before_a_dialogue_is_played(tmp_path: Path) -> None:
    row = {"problem_description": "A fee, please. def fee(h)", "test_cases": {"it": "fee(1)"}}
    rows = [{**row, "problem_description": f"{index}: {row['problem_description']}"} for index in range(12)]
    texts = [
        json.dumps(one | {"ground_truth": f"def fee(h):\n    return h * {index}"}) for index, one in enumerate(rows)
    ]
    texts[4] = json.dumps(rows[4] | {"ground_truth": "def fee(h):\n    return missing"})
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(texts))
    here, server = (
        [str(tmp_path / "run"), "--tasks", str(file)],
        ["--sim", "nobody", "--sim-url", "http://127.0.0.1:9/v1"],
    )
    words = [*SWEET, "train", *here, *server]
    outcome = run(words, torch=True)
    assert outcome.returncode == 2
    assert "1 of 12 tasks cannot be scored" in " ".join(outcome.stderr.split())
    assert "line 5" in outcome.stderr
    assert not (tmp_path / "run").exists(), "a run without content is no run"


@pytest.mark.parametrize("missing", ["train", "test"])
def test_a_file_without_tasks_of_a_split_is_refused_before_a_dialogue_is_played(tmp_path: Path, missing: str) -> None:
    split = {"train": "test", "test": "train"}[missing]
    row = {
        "problem_description": "def one()",
        "ground_truth": "def one():\n    return 1",
        "test_cases": {"it": "one()"},
    }
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(row | {"split": split}))
    outcome = run([*SWEET, "train", str(tmp_path / "run"), "--tasks", str(file), "--agent", "nobody"], torch=True)
    assert outcome.returncode == 2
    said = " ".join(outcome.stderr.split())
    assert f"has no task of the split {missing}; it has 1 {split}" in said
    assert f"A new run: agent nobody, tasks {file}, 1 round." in said
    assert "rollout" not in said


def test_dialogues_that_fail_end_it_as_they_end_the_rollout(tmp_path: Path) -> None:
    """With its exit code, its table, its reasons, and what to do where this command is called."""
    with ChatServer("served", lambda body: said("")).running() as url:
        words = [*SWEET, "train", str(tmp_path / "run"), "--agent", "served", "--agent-url", url, "--eval-tasks", "2"]
        refused = run(words, torch=True)
        assert refused.returncode == 2
        assert not (tmp_path / "run").exists(), "before the first dialogue"
        assert "There is no model 'served'" in refused.stderr
        assert "--set train-actor.model=MODEL" in " ".join(refused.stderr.split())
        words += ["--set", "train-critic.model=micro", "--set", "train-actor.model=micro"]
        outcome = run([*words, "--set", "rollout.deadline=1e-4"], torch=True)
    assert outcome.returncode == 4, outcome.stderr
    for said_so in (
        "Too many failures",
        "2 of 2 dialogues failed",
        "2 × no reply within 0.0001 seconds",
        "run the same command again for the failed ones, or allow them: --set rollout.fail-on-error=SHARE",
    ):
        assert said_so in outcome.stderr
    assert outcome.stdout.startswith("rollout · ")


def test_a_file_of_tasks_gets_splits(tmp_path: Path) -> None:
    rows = [
        {
            "problem_description": f"I need a number. The signature of the function is: def number_{index}()",
            "ground_truth": f"def number_{index}():\n    return {index}",
            "test_cases": {"it": f"number_{index}()"},
            "facts": [{"topic": "value", "cues": ["value"], "answer": f"It is {index}."}],
        }
        for index in range(40)
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [*SWEET, "train", str(tmp_path / "run"), "--tasks", str(file), "--dry-run", "--json", "--rounds", "2"]
    outcome = run(words, torch=True)
    assert outcome.returncode == 0, outcome.stderr
    steps = {step["step"]: step.get("work") for step in json.loads(outcome.stdout)["plan"]["steps"]}
    tasks = [steps[f"start: rollout {split}"]["tasks"] for split in ("test", "validation")]
    tasks.append(steps["round 1: rollout train"]["tasks"])
    assert sum(tasks) == 40
    assert all(tasks)


def test_an_interrupted_call_prints_the_short_command_that_continues(tmp_path: Path, recipe: Path) -> None:
    folder = tmp_path / "run"
    pipe = subprocess.PIPE
    with start([*SWEET, "train", folder, "--recipe", recipe], torch=True, stderr=pipe, text=True) as process:
        ends = time.monotonic() + 120
        while not (folder / "logs" / "rollout-1.log").exists():
            assert time.monotonic() < ends
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"sweet train {folder}" in err
    assert str(recipe) not in err


def test_a_run_that_stopped_at_the_limit_of_its_cost_goes_on_by_the_command_that_it_names(
    tmp_path: Path, recipe: Path
) -> None:
    """The prices are in the run's recipe then. A token that the agent writes costs 1."""
    folder, prices = tmp_path / "run", tmp_path / "prices.toml"
    prices.write_text("[agent]\ncompletion = 1000000\n")
    refused = run([*SWEET, "train", folder, "--recipe", recipe, "--max-cost", "1"], torch=True)
    assert (refused.returncode, "needs the prices" in refused.stderr) == (2, True), refused.stderr
    words: list[str | Path] = ["train", folder, "--recipe", recipe, "--prices", prices, "--max-cost", "1", "--json"]
    stopped = run([*SWEET, *words], torch=True)
    assert stopped.returncode == 130, stopped.stderr
    assert json.loads(stopped.stdout)["fix"] == f"sweet train {folder} --max-cost MORE"
    prices.unlink()
    again = run([*SWEET, "train", folder, "--max-cost", "1e9", "--json"], torch=True)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["cost"] > 1
    shown = run([*SWEET, "status", folder], torch=False)
    assert "(limit 1e+09)" in shown.stdout
