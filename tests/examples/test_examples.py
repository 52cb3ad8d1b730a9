"""The programs in examples/ run, and print what they promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sweet_capitals import CAPITALS
from sweet_discounted import Discounted

import sweet
from sweet.credit.base import Batch
from sweet.errors import UsageError
from sweet.learn.lora import LoraSettings
from sweet.learn.trainee import Start, Trainee
from sweet.llm.pretrained import load_tokenizer
from sweet.sandbox.tiers import probe_tiers
from sweet.tasks.registry import task_kind
from tests import programs
from tests.docs.pages import ROOT
from tests.learn.builders import build_trajectory
from tests.packages import register
from tests.stages.learn_runs import make_agent, make_run

EXAMPLES = ROOT / "examples"
UNASKED: Any = None
"""In the place of a training's models: this rule asks none."""
LONGEST = 60
"""Lines of a program."""

needs_jail = pytest.mark.skipif(
    not any(tier.works for tier in probe_tiers() if tier.name != "unsafe"), reason="no jail works here"
)


def run_program(name: str, folder: Path) -> str:
    done = programs.run([EXAMPLES / name, folder / "run"], torch=True, cwd=folder, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_jail
def test_answers_of_ones_own_are_scored(tmp_path: Path) -> None:
    printed = run_program("score_answers.py", tmp_path).splitlines()
    assert [line[-4:] for line in printed[:-1]] == ["1.00", "0.00"] * 5
    assert printed[-1] == "success rate: 0.5"


@needs_jail
def test_dialogues_are_played_and_scored(tmp_path: Path) -> None:
    printed = run_program("play_and_score.py", tmp_path)
    assert len(re.findall(r"^== .+, reward [\d.]+$", printed, re.MULTILINE)) == 6
    assert re.search(r"\n6 dialogues, [\d.]+ % of the hidden tests passed\n$", printed)


def test_a_judge_of_ones_own_ranks(tmp_path: Path) -> None:
    found = re.match(r"(\d+) pairs in (.+\.jsonl);", run_program("own_judge.py", tmp_path))
    assert found
    assert len(Path(found[2]).read_text(encoding="utf-8").splitlines()) == int(found[1]) > 0


def test_a_kind_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in register(EXAMPLES / "own_kind", tmp_path / "site"):
        monkeypatch.syspath_prepend(folder)
    run = sweet.Run.create(tmp_path / "run", task="capitals")
    sweet.rollout(run, sweet.RolloutConfig(task="capitals", agent="scripted", samples=8))
    metrics = sweet.evaluate(run).as_json()["metrics"]
    assert metrics["trajectories"] == 32
    assert {trajectory.task.ground_truth for trajectory in sweet.read_trajectories(run)} < {*CAPITALS.values()}
    assert 0.3 < metrics["success_rate"] < 1
    assert sweet.label(run).artifacts[0].rows


def test_a_rule_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in register(EXAMPLES / "own_rule", tmp_path / "site"):
        monkeypatch.syspath_prepend(folder)
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=2)
    config = sweet.TrainActorConfig(algorithm="discounted", rule_option=["decay=0.5"], device="cpu", epochs=1)
    trained = sweet.train_actor(run, config)
    assert trained.artifacts[0].meta["algorithm"] == "discounted"
    assert trained.as_json()["metrics"]["examples"] == 6
    dialogue = build_trajectory("a", turns=3, task="one")
    others = {"a": dialogue, "b": build_trajectory("b", turns=1, task="one")}
    batch = Batch(others, task_kind("code").rewards, rewards={"a": 1.0, "b": 0.0})
    [first, second] = Discounted(decay=0.5, std=False).credit(batch, UNASKED)
    assert first.policy == {1: 0.125, 3: 0.25, 5: 0.5}
    assert second.policy == {1: -0.5}


@needs_jail
@pytest.mark.usefixtures("forked_python")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (pip install '.[test]')")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (pip install '.[test]')")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (pip install '.[test]')")
    monkeypatch.setenv("RUN", str(tmp_path / "run"))
    notebook = nbformat.read(EXAMPLES / "pipeline.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = notebook.cells[-1].outputs[-1]["data"]["text/plain"]
    assert "'success_rate'" in printed
    kinds = {artifact.kind for artifact in sweet.Run.open(tmp_path / "run").manifest().artifacts}
    assert kinds == {"rollouts", "scores", "preferences", "critic", "candidates", "pairs", "actor"}


def test_the_notebook_is_stored_without_outputs() -> None:
    text = (EXAMPLES / "pipeline.ipynb").read_text(encoding="utf-8")
    assert text.count('"outputs": []') == text.count('"cell_type": "code"')
    assert text.count('"execution_count": null') == text.count('"cell_type": "code"')


def test_every_example_is_short_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.iterdir():
        if path.name not in ("README.md", "__pycache__"):
            assert any(f"]({path.name}{end}" in listed for end in (")", "/")), path
    programs = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("own_*/*/__init__.py")]
    assert len(programs) > 3
    long = [path.name for path in programs if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST]
    assert long == []


def test_an_adapter_is_written_as_a_model_and_a_gguf_file_needs_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    monkeypatch.syspath_prepend(EXAMPLES)
    from convert_model import convert

    trainee = Trainee.load(Start(make_agent(tmp_path / "agent"), LoraSettings(2, 4), "adapter"), "cpu")
    trainee.write(load_tokenizer(trainee.start.base), tmp_path / "adapter")
    convert(str(tmp_path / "adapter"), tmp_path / "merged")
    assert (tmp_path / "merged" / "model.safetensors").is_file()
    with pytest.raises(UsageError, match="The folder exists"):
        convert(str(tmp_path / "adapter"), tmp_path / "merged")
    with pytest.raises(UsageError, match="no GGUF file and no adapter"):
        convert(trainee.start.base, tmp_path / "other")
    monkeypatch.setattr("convert_model.find_spec", lambda _name: None)
    with pytest.raises(UsageError) as error:
        convert("small.gguf", tmp_path / "other")
    assert error.value.fix == "pip install gguf accelerate"
