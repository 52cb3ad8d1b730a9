"""WebSight's rows become tasks named after them, and a split is there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from sweet.datasets.websight import WebSightConfig, hub_rows, run_data_websight
from sweet.errors import ServerError, SweetError, UsageError
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from tests.datasets.hub_server import DATASET, serve_hub
from tests.packages import hide_package

IMAGE = "<img src='https://source.unsplash.com/random/{0}x{0}/?food,cafe'>"


def row(number: int) -> dict[str, Any]:
    page = f"<!DOCTYPE html>\n<html>\n<body><h1>Café {number}</h1>{IMAGE.format(number % 99 + 1)}</body>\n</html>"
    return {"text": page, "llm_generated_idea": f" Idea {number}: a café\n"}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "websight"


@pytest.fixture
def source(tmp_path: Path, data: Path) -> Path:
    """Enough rows for five test tasks."""
    return write(tmp_path / "rows.jsonl", *map(row, range(10_005)))


class Messages(Silent):
    """Records the messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)


def build(source: Path, reporter: Silent | None = None, **fields: Any) -> dict[str, Any]:
    config = WebSightConfig(source=str(source), **fields)
    metrics: dict[str, Any] = run_data_websight(config, reporter or Silent()).as_json()["metrics"]
    return metrics


def ids(split: str) -> list[str]:
    return [task.id for task in task_kind("html").load("websight", split)]


def test_both_splits_can_be_played(source: Path, data: Path) -> None:
    metrics = build(source, limit=5)
    assert {metrics[key] for key in ("train", "test")} == {5}
    assert metrics["train_sha256"] == hashlib.sha256((data / "train.jsonl").read_bytes()).hexdigest()
    assert ids("train") == [f"websight-{number:05d}" for number in range(5)]
    assert ids("test") == [f"websight-{number}" for number in range(10_000, 10_005)]
    assert task_kind("html").tasks_for() == "websight"
    third = task_kind("html").load("websight", "train")[2]
    assert third.problem_description == "Idea 2: a café"
    assert third.ground_truth == (
        "<html>\n<body><h1>Café 2</h1><img src='https://picsum.photos/id/48/3/3'></body>\n</html>"
    )
    assert sorted(file.name for file in data.iterdir()) == ["test.jsonl", "train.jsonl"]


def test_an_existing_split_is_kept(source: Path, data: Path) -> None:
    metrics = build(source, split="train", limit=3)
    assert set(metrics) == {"train", "train_passed_over", "train_sha256"}
    assert not (data / "test.jsonl").exists()
    first = (data / "train.jsonl").read_bytes()
    write(source, *map(row, range(4, 8)))
    reporter = Messages()
    assert build(source, reporter, split="train", limit=2) == {"train": 3, "train_sha256": metrics["train_sha256"]}
    assert (data / "train.jsonl").read_bytes() == first
    assert "has 3 tasks and is kept; sweet data websight --force builds it again" in reporter.lines[0]
    assert build(source, split="train", limit=2, force=True)["train"] == 2
    assert "Café 4" in (data / "train.jsonl").read_text()


def test_rows_that_cannot_be_played_are_skipped_and_reported(tmp_path: Path, data: Path) -> None:
    rows = [row(number) for number in range(6)]
    rows[1]["text"] = "no page"
    rows[3]["llm_generated_idea"] = None
    rows[5]["text"] = None
    reporter = Messages()
    metrics = build(write(tmp_path / "rows.jsonl", *rows), reporter, split="train", limit=6)
    assert (metrics["train"], metrics["train_passed_over"]) == (3, 3)
    assert reporter.lines[-1] == "Without a page or a description: 3 of 6 rows of the split train."
    assert ids("train") == ["websight-00000", "websight-00002", "websight-00004"]


def test_a_source_that_ends_too_early_is_reported_and_leaves_nothing(tmp_path: Path, data: Path) -> None:
    short = write(tmp_path / "rows.jsonl", *map(row, range(3)))
    with pytest.raises(SweetError, match="ends after row 2; train is rows 0 to 9,999"):
        build(short)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([{"text": "<html></html>", "idea": "x"}], "Row 0 has no text 'llm_generated_idea': it has 'text', 'idea'"),
        ([row(0), {"text": 3, "llm_generated_idea": "x"}], "Row 1 has no text 'text': it has another type there"),
        ([{"text": "none", "llm_generated_idea": "x"}] * 2, "No row has a page"),
    ],
)
def test_what_is_not_the_dataset_is_refused(tmp_path: Path, data: Path, rows: list[Any], what: str) -> None:
    with pytest.raises(SweetError, match=what) as caught:
        build(write(tmp_path / "rows.jsonl", *rows), split="train", limit=2)
    assert caught.value.fix
    assert not (data / "train.jsonl").exists()


@pytest.mark.parametrize("name", ["./none", "/none/at.all", "none.jsonl", "a/b/c"])
def test_a_source_that_is_not_there(data: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no such file"):
        run_data_websight(WebSightConfig(source=name), Silent())


def test_a_folder_of_json_lines_and_one_above_it(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "copy" / "v0.2"
    folder.mkdir(parents=True)
    write(folder / "b.jsonl", row(2), row(3))
    write(folder / "a.jsonl", row(0), row(1))
    assert build(folder, split="train", limit=4)["train"] == 4
    assert "Café 3" in (data / "train.jsonl").read_text().splitlines()[3]
    with pytest.raises(UsageError, match="no Parquet or JSONL file") as caught:
        build(folder.parent, split="train", limit=5, force=True)
    assert caught.value.fix == f"--source {folder}"


def test_without_the_package_datasets(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_package("datasets", monkeypatch)
    (tmp_path / "a.parquet").touch()
    for source in ("owner/name", str(tmp_path / "a.parquet")):
        with pytest.raises(UsageError, match="require the package datasets") as caught:
            run_data_websight(WebSightConfig(source=source), Silent())
        assert ".[data]" in str(caught.value.fix)


class Written(Protocol):
    def __call__(self, folder: Path, rows: int, picture: bytes = ...) -> Path: ...


@pytest.fixture
def parquet() -> Written:
    """Write rows in the layout of the hub: two Parquet files with screenshots, and a card."""
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed (extra data)")
    datasets.disable_progress_bars()
    columns = {"image": datasets.Image(), **{name: datasets.Value("string") for name in ("text", "llm_generated_idea")}}

    def write_part(file: Path, numbers: range, picture: bytes) -> None:
        found = [{"image": {"bytes": picture, "path": None}, **row(number)} for number in numbers]
        file.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_list(found, features=datasets.Features(columns)).to_parquet(file)

    # Were a screenshot decoded, this one would end the test.
    def written(folder: Path, rows: int, picture: bytes = b"no picture") -> Path:
        write_part(folder / "v0.1" / "train-00000-of-00001.parquet", range(20_000, 20_002), picture)
        write_part(folder / "v0.2" / "train-00000-of-00002.parquet", range(rows - 3), picture)
        write_part(folder / "v0.2" / "train-00001-of-00002.parquet", range(rows - 3, rows), picture)
        (folder / "README.md").write_text(CARD)
        return folder

    return written


CARD = """---
configs:
- config_name: v0.1
  data_files: [{split: train, path: v0.1/train-*}]
- config_name: v0.2
  data_files: [{split: train, path: v0.2/train-*}]
dataset_info:
- config_name: v0.2
  features: [{name: image, dtype: image}, {name: text, dtype: string}, {name: llm_generated_idea, dtype: string}]
---
"""


def test_parquet_files_of_the_hubs_columns(tmp_path: Path, data: Path, parquet: Written) -> None:
    folder = parquet(tmp_path / "copy", 10_004) / "v0.2"
    metrics = build(folder, limit=4)
    assert (metrics["train"], metrics["test"]) == (4, 4)
    assert ids("test")[-1] == "websight-10003"
    assert build(folder / "train-00001-of-00002.parquet", split="train", limit=3, force=True)["train"] == 3
    assert "Café 10001" in (data / "train.jsonl").read_text()
    (folder / "train-00000-of-00002.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(SweetError, match="cannot be read"):
        build(folder, split="train", limit=9, force=True)


def test_a_dataset_with_a_card_is_streamed(tmp_path: Path, parquet: Written) -> None:
    """A local copy in the hub's layout, opened like a dataset of the hub."""
    copy = str(parquet(tmp_path / "copy", 8))
    assert list(hub_rows(copy, "v0.2", "main", 4)) == [row(number) for number in range(4, 8)]
    with pytest.raises(SweetError, match=r"v0\.3") as caught:
        list(hub_rows(copy, "v0.3", "main", 0))
    assert "--subset" in str(caught.value.fix)


def test_no_hub_is_a_server_that_cannot_be_reached(data: Path) -> None:
    pytest.importorskip("datasets", reason="the package datasets is not installed (extra data)")
    with pytest.raises(ServerError, match="could not be reached") as caught:
        run_data_websight(WebSightConfig(source="nobody/nothing"), Silent())
    assert "sweet data websight" in str(caught.value.fix)


def test_the_hubs_screenshots_are_not_fetched(tmp_path: Path, data: Path, parquet: Written) -> None:
    """The real clients use a local hub, in a separate process, because they read its address once."""
    folder = parquet(tmp_path / "copy", 200, picture=random.Random(0).randbytes(100_000))

    def fetch(dataset: str, limit: int) -> tuple[int, str]:
        command = ["data", "websight", "--source", dataset, "--split", "train", "--limit", str(limit)]
        at_hub = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
        program = [sys.executable, "-m", "sweet", *command, "--json"]
        done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, **at_hub})
        return done.returncode, done.stdout + done.stderr

    with serve_hub(folder) as hub:
        code, result = fetch(DATASET, 200)
        assert code == 0, result
        assert ids("train") == [f"websight-{number:05d}" for number in range(200)]
        assert "Café 199" in (data / "train.jsonl").read_text().splitlines()[199]
        assert 0 < hub.sent < 2**20 < sum(file.stat().st_size for file in folder.glob("v0.2/*")) / 10
        (data / "train.jsonl").unlink()
        code, result = fetch("nobody/nothing", 201)
        assert code == 1, result
        assert "has no such dataset" in result
