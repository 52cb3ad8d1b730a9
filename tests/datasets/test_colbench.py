"""ColBench is verified and stored in the user's data folder; without a hub the error names the fix."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from sweet.datasets.colbench import DATASET, TRAJECTORIES, ColBenchConfig, run_data_colbench
from sweet.errors import ServerError, SweetError
from sweet.paths import data_folder
from sweet.stages.base import Silent
from sweet.tasks.files import downloaded_file
from sweet.tasks.registry import task_kind
from tests.datasets.test_published import row
from tests.stages.heard import Heard


class LocalHub:
    """Replaces `hf_hub_download` by files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def __call__(self, repo_id: str, filename: str, *, repo_type: str, revision: str) -> str:
        assert (repo_id, repo_type) == (DATASET, "dataset")
        self.asked.append(f"{revision}/{filename}")
        return str(self.folder / filename)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path / "data"))
    (tmp_path / "hub" / "backend_tasks").mkdir(parents=True)
    task = row()["task"]
    for split, rows in (("train", 3), ("test", 2)):
        file = tmp_path / "hub" / "backend_tasks" / f"{split}.jsonl"
        file.write_text("".join(json.dumps(task) + "\n" for _ in range(rows)))
    (tmp_path / "hub" / TRAJECTORIES).write_text(json.dumps(row()) + "\n")
    return LocalHub(tmp_path / "hub")


def test_both_splits_are_fetched_once_and_can_be_played(hub: LocalHub) -> None:
    result = run_data_colbench(ColBenchConfig(), Silent(), hub)
    assert result.metrics.as_json() == {"train": 3, "test": 2}
    assert len(task_kind("code").load("colbench", "test")) == 2
    assert task_kind("code").tasks_for() == "colbench"
    assert hub.asked == ["main/backend_tasks/train.jsonl", "main/backend_tasks/test.jsonl"]
    assert run_data_colbench(ColBenchConfig(), Silent(), hub).metrics.as_json() == {"train": 3, "test": 2}
    assert len(hub.asked) == 2
    run_data_colbench(ColBenchConfig(force=True, revision="v2", trajectories=True), Silent(), hub)
    assert hub.asked[2:] == [
        "v2/backend_tasks/train.jsonl",
        "v2/backend_tasks/test.jsonl",
        f"v2/{TRAJECTORIES}",
    ]
    assert (data_folder() / "colbench" / TRAJECTORIES).is_file()


def test_what_is_not_the_dataset_is_refused(hub: LocalHub) -> None:
    (hub.folder / "backend_tasks" / "test.jsonl").write_text('{"problem_description": "x"}\n')
    with pytest.raises(SweetError) as caught:
        run_data_colbench(ColBenchConfig(), Silent(), hub)
    assert caught.value.exit_code == 1
    assert "line 1" in str(caught.value.where)
    assert not downloaded_file("colbench", "test").exists()
    assert downloaded_file("colbench", "train").exists(), "valid files stay"


def test_one_bad_row_does_not_cost_the_others(hub: LocalHub) -> None:
    """They keep the ids that their places in the file give them."""
    file, listening = hub.folder / "backend_tasks" / "train.jsonl", Heard()
    task = json.dumps(row()["task"])
    file.write_text(f'{task}\n{{"problem_description": "x"}}\nnot json\n{task}\n')
    assert run_data_colbench(ColBenchConfig(), listening, hub).metrics.train == 2
    assert [one.id for one in task_kind("code").load("colbench", "train")] == ["train-0000", "train-0003"]
    (warning,) = listening.warnings
    assert "2 rows" in warning
    assert "line 2" in warning
    assert "line 3" in warning
    assert run_data_colbench(ColBenchConfig(), Silent(), hub).metrics.train == 2


@pytest.mark.parametrize(
    "error", [LocalEntryNotFoundError("no"), OfflineModeIsEnabled("no"), ConnectionError("no"), TimeoutError("no")]
)
def test_no_hub_is_a_server_that_cannot_be_reached(hub: LocalHub, error: Exception) -> None:
    def unreachable(repo_id: str, filename: str, **rest: Any) -> str:
        raise error

    with pytest.raises(ServerError) as caught:
        run_data_colbench(ColBenchConfig(), Silent(), unreachable)
    assert caught.value.exit_code == 3


def test_a_full_disk_is_not_blamed_on_the_hub(hub: LocalHub) -> None:
    def full(repo_id: str, filename: str, **rest: Any) -> str:
        raise OSError(28, "No space left on device", "/cache")

    with pytest.raises(OSError, match="No space"):
        run_data_colbench(ColBenchConfig(), Silent(), full)


def test_the_real_client_without_a_network(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ServerError):
        run_data_colbench(ColBenchConfig(), Silent())
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def test_the_data_folder_follows_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEET_DATA", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "sweet"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert data_folder() == tmp_path / "home" / ".local" / "share" / "sweet"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == tmp_path / "home" / "Library" / "Application Support" / "sweet"
