"""`sweet data export --to trl`: the rows, and that TRL's own trainers learn from them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.exporting import DataExportConfig
from sweet.datasets.trl import KTO, PREFERENCE, run_trl_export
from sweet.errors import UsageError
from sweet.learn.rows import Candidate, Pair
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, put

ASKED = (Message(role="system", content="s"), Message(role="user", content="5 and 7"))


def pair(number: int, chosen: str, rejected: str, thought: str | None = None) -> Pair:
    return Pair(
        id=f"p{number}",
        task_id="t",
        trajectory_id=f"d{number // 2}",
        turn=1,
        observation=ASKED,
        chosen=Candidate(text=chosen, thought=thought, advantage=1.0),
        rejected=Candidate(text=rejected, advantage=0.0),
    )


PAIRS = [pair(0, "a", "b"), pair(1, "c", "a"), pair(2, "1 2", "3"), pair(3, "4", "5 €", thought="6 7")]

ALONE = PAIRS[2].model_copy(update={"id": "alone", "rejected": None})


def exported(folder: Path, pairs: list[Pair], **options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    run = Run.create(folder / "run", task="code")
    put(run, "pair", "pairs", pairs)
    run_trl_export(run, DataExportConfig(to="trl", out=folder / "trl", **options), Silent())
    preferences, replies = (
        [json.loads(line) for line in (folder / "trl" / name).read_text().splitlines()] for name in (PREFERENCE, KTO)
    )
    return preferences, replies


def test_pairs_are_preferences_and_their_replies_have_labels(tmp_path: Path) -> None:
    preferences, replies = exported(tmp_path, PAIRS)
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "5 and 7"}]
    assert preferences[1] == {
        "prompt": prompt,
        "chosen": [{"role": "assistant", "content": "c"}],
        "rejected": [{"role": "assistant", "content": "a"}],
    }
    labels = [(row["completion"][0]["content"], row["label"]) for row in replies]
    assert labels == [("b", False), ("c", True), ("1 2", True), ("3", False), ("4", True), ("5 €", False)]
    assert {len(row["completion"]) for row in replies} == {1}
    assert all(row["prompt"] == prompt for row in replies)


def test_a_reply_that_is_better_and_worse_has_no_label(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    put(run, "pair", "pairs", PAIRS)
    heard = Heard()
    metrics = run_trl_export(run, DataExportConfig(to="trl", out=tmp_path / "out"), heard).metrics
    assert (metrics.preferences, metrics.replies, metrics.desirable, metrics.ambiguous) == (4, 6, 3, 1)
    assert "1 reply" in heard.said[-1]


def test_a_reply_without_a_rejected_one_is_not_exported(tmp_path: Path) -> None:
    (tmp_path / "pairs").mkdir()
    assert exported(tmp_path, [*PAIRS, ALONE]) == exported(tmp_path / "pairs", PAIRS)
    heard = Heard()
    run_trl_export(Run.open(tmp_path / "run"), DataExportConfig(to="trl", out=tmp_path / "out"), heard)
    assert "not exported: 1 reply" in heard.said[-1]


def test_thoughts_are_exported_if_they_are_asked_for(tmp_path: Path) -> None:
    preferences, _ = exported(tmp_path, PAIRS, include_thoughts=True)
    assert preferences[3]["chosen"] == [{"role": "assistant", "content": "4", "reasoning_content": "6 7"}]
    (tmp_path / "second").mkdir()
    preferences, _ = exported(tmp_path / "second", PAIRS)
    assert preferences[3]["chosen"] == [{"role": "assistant", "content": "4"}]


def test_a_run_without_pairs_is_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    with pytest.raises(UsageError, match="pairs"):
        run_trl_export(run, DataExportConfig(to="trl", out=tmp_path / "out"), Silent())
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("models") / "agent")


@pytest.mark.parametrize("name", ["DPO", "KTO"])
@pytest.mark.filterwarnings("ignore")
def test_trl_learns_from_the_export(tmp_path: Path, agent: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed (pip install trl)")
    datasets = pytest.importorskip("datasets")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setitem(os.environ, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pairs = [pair(number, f"{number} 1 2", f"{number} 3") for number in range(8)]
    exported(tmp_path, pairs)
    file = tmp_path / "trl" / (PREFERENCE if name == "DPO" else KTO)
    rows = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    settings = getattr(trl, f"{name}Config")(
        output_dir=str(tmp_path / "trained"),
        max_steps=2,
        per_device_train_batch_size=4,
        learning_rate=0.01,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(agent)
    model, before = (AutoModelForCausalLM.from_pretrained(agent) for _ in range(2))
    trainer = getattr(trl, f"{name}Trainer")(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 2
    assert any((old != new).any() for old, new in zip(before.parameters(), model.parameters(), strict=True))
    [prompts] = {str(row["prompt"]) for row in rows.to_list()}
    assert "5 and 7" in prompts
