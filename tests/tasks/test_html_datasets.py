"""The packaged pages, and html tasks from files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import InputError, UsageError
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.html.page import extract_page

ROW: dict[str, Any] = {
    "problem_description": "A bakery.",
    "ground_truth": "<html>\n<body><img src='https://picsum.photos/20/10'></body>\n</html>",
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_packaged_pages() -> None:
    train, test = (HtmlKind().load("pages", split) for split in ("train", "test"))
    tasks = [*train, *test]
    assert (len(train), len(test)) == (12, 8)
    assert len({task.id for task in tasks}) == len({task.ground_truth for task in tasks}) == 20
    for task in tasks:
        assert extract_page(task.ground_truth) == task.ground_truth
        assert not re.search(r"https?:|//|<script|<link", task.ground_truth), "nothing is fetched"
        title = re.search(r"<h1>([^<]*)</h1>", task.ground_truth)
        assert title is None or title[1] not in task.problem_description, "the request is vague"


def test_every_page_has_its_request(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "sweet" / "tasks" / "html" / "pages"
    requests = json.loads((folder / "requests.json").read_text())
    for split, named in requests.items():
        assert sorted(named) == sorted(file.stem for file in (folder / split).glob("*.html"))


def test_a_file_in_the_published_schema(tmp_path: Path) -> None:
    around = {**ROW, "ground_truth": f"```html\n{ROW['ground_truth']}\n```", "id": "mine"}
    first, second = HtmlKind().load(str(write(tmp_path / "shop.jsonl", ROW, around)), "test")
    assert (first.id, second.id) == ("shop-0000", "mine")
    page = ROW["ground_truth"].replace("photos/20", "photos/id/48/20")
    assert first.ground_truth == second.ground_truth == first.hidden == page


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({**ROW, "ground_truth": "def f(): pass"}, "contains no page"),
        ({**ROW, "ground_truth": ""}, "ground_truth"),
        ({**ROW, "ground_truth": 3}, "ground_truth"),
        ({"ground_truth": ROW["ground_truth"]}, "problem_description"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line(tmp_path: Path, row: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        HtmlKind().load(str(write(tmp_path / "a.jsonl", ROW, row)), "train")
    assert caught.value.line == 2
    assert caught.value.fix


def test_datasets_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path))
    kind = HtmlKind()
    assert kind.tasks_for() == "pages"
    with pytest.raises(UsageError, match="not on this machine"):
        kind.load("websight", "train")
    with pytest.raises(InputError) as caught:
        kind.load("page", "train")
    assert caught.value.fix == "write pages"
    with pytest.raises(UsageError) as wrong:
        kind.load("pages", "tst")
    assert wrong.value.fix == "--split test"
    (tmp_path / "websight").mkdir()
    write(tmp_path / "websight" / "train.jsonl", ROW)
    assert kind.tasks_for() == kind.tasks_for("org/model", scripted=True) == "websight"
    assert len(kind.load("websight", "train")) == 1
