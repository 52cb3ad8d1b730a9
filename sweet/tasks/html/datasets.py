"""Load html tasks by dataset name, or from a JSONL file in ColBench's schema; errors name the line.

`pages` ships with the package: `pages/SPLIT/NAME.html`, with the vague requests in `pages/requests.json`. A row of a
file has `problem_description` and `ground_truth`, the HTML of the reference page.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.tasks.base import Task
from sweet.tasks.datasets import COLBENCH_SPLITS, websight_file
from sweet.tasks.files import Wrong, check_split, load_task_file, not_there
from sweet.tasks.html.page import extract_page

SPLITS = {"pages": ("train", "test"), "websight": COLBENCH_SPLITS}


def load(tasks: str, split: str) -> list[Task]:
    """Load the tasks of a dataset or file, in their order.

    Raises:
        UsageError: there is no such dataset, split or file, or the dataset is not on this machine.
        InputError: a row of the file is not an html task; names the line.
    """
    check_split(tasks, split, SPLITS)
    if tasks == "pages":
        return _pages(split)
    path = websight_file(split) if tasks == "websight" else Path(tasks)
    if path.is_file():
        return load_task_file(path, fields)
    if tasks == "websight":
        raise UsageError(
            f"WebSight's {split} split is not on this machine.",
            where=path,
            fix=Hint("sweet data websight, or ", option("tasks", "pages")),
        )
    raise not_there(path, SPLITS)


def _pages(split: str) -> list[Task]:
    folder = resources.files("sweet.tasks.html") / "pages"
    requests: dict[str, str] = json.loads((folder / "requests.json").read_text("utf-8"))[split]
    return [
        Task(
            id=f"pages-{split}-{name}",
            problem_description=request,
            ground_truth=(folder / split / f"{name}.html").read_text("utf-8").strip(),
        )
        for name, request in requests.items()
    ]


def fields(row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
    """Return the reference page as it is rendered: without surrounding text, its image addresses rewritten."""
    page = extract_page(row["ground_truth"])
    if page is None:
        raise wrong("'ground_truth' contains no page.", "give it the page's source, from <html> to </html>")
    return {"ground_truth": page}
