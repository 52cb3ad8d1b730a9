"""`sweet data websight`: build the frontend tasks of ColBench from WebSight on the model hub.

A task is made from a row: the agent gets its description, and its page is the reference. Train is the first 10,000 rows
of WebSight v0.2 and test the following 10,000, of which the paper plays the first 500. A task is named after its row,
`websight-00042`, independent of other rows. Rows without a page or a description are skipped.

The texts of a split are some tens of megabytes: a split is built in one go, and put in place when it is complete.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sweet.datasets.hub import reaching_hub
from sweet.datasets.metrics import WebSightMetrics
from sweet.errors import SweetError, UsageError
from sweet.files import replacing
from sweet.installation import install_command
from sweet.paths import data_folder
from sweet.runs.jsonl import encode, plain, read_rows
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import HubConfig
from sweet.tasks.files import downloaded_file
from sweet.tasks.html.page import extract_page
from sweet.units import count

WEBSIGHT = "HuggingFaceM4/WebSight"
AGAIN = "sweet data websight"

Split = Literal["train", "test"]
ROWS: dict[Split, range] = {"train": range(10_000), "test": range(10_000, 20_000)}
"""The rows of each split."""


class WebSightConfig(HubConfig):
    source: str = WEBSIGHT
    """Dataset on the hub, or a folder of Parquet files, a Parquet file or a JSONL file with the same columns."""
    subset: str = "v0.2"
    """Configuration of the dataset on the hub."""
    split: str | None = None
    """Only this split: train or test."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first rows of each split."""


def run_data_websight(config: WebSightConfig, reporter: Reporter) -> StageResult[WebSightMetrics]:
    """Build the missing splits. The result's `run` is the data folder.

    Raises:
        UsageError: the source does not exist or has another form.
        ServerError: the hub could not be reached.
        SweetError: the hub refused access, or the source ends too early.
    """
    folder = data_folder() / "websight"
    folder.mkdir(parents=True, exist_ok=True)
    splits = [split for split in ROWS if config.split in (None, split)]
    if not splits:
        raise UsageError(f"WebSight has no split {config.split}.", where="--split", fix="train or test")
    metrics: dict[str, int | str] = {}
    for split in splits:
        file = downloaded_file("websight", split)
        if file.is_file() and not config.force:
            tasks = sum(1 for _ in read_rows(file))
            reporter.say(f"{file} has {count(tasks, 'task')} and is kept; {AGAIN} --force builds it again.")
        else:
            tasks, passed_over = _build(split, file, config, reporter)
            metrics[f"{split}_passed_over"] = passed_over
        with file.open("rb") as opened:
            metrics |= {split: tasks, f"{split}_sha256": hashlib.file_digest(opened, "sha256").hexdigest()}
    return StageResult("data websight", folder, WebSightMetrics.model_validate(metrics))


def _build(split: Split, file: Path, config: WebSightConfig, reporter: Reporter) -> tuple[int, int]:
    """Write the file of a split. Return the numbers of its tasks and of the rows without one."""
    numbers = ROWS[split][: config.limit]
    opened = open_rows(config.source, config.subset, config.revision, numbers.start)
    reporter.say(f"Fetching rows {numbers.start:,} to {numbers.stop - 1:,} of {config.source}.")
    tasks = 0
    with replacing(file) as out, closing(opened) as rows, reporter.progress(split, len(numbers)) as bar:
        for number in numbers:
            row = next(rows, None)
            if row is None:
                raise SweetError(
                    f"The source ends after row {number - 1:,}; {split} is rows "
                    f"{numbers.start:,} to {numbers.stop - 1:,}.",
                    where=config.source,
                    fix="a source with more rows, or a smaller --limit",
                )
            task = _task(number, row, config.source)
            if task is not None:
                out.write(encode(task) + b"\n")
                tasks += 1
            bar.advance()
        if not tasks:
            raise SweetError(
                f"No row has a page and a description, as {' and '.join(COLUMNS)}.",
                where=config.source,
                fix="name another --source",
            )
    if tasks < len(numbers):
        skipped = f"{len(numbers) - tasks:,} of {count(len(numbers), 'row')}"
        reporter.warn(f"Without a page or a description: {skipped} of the split {split}.")
    return tasks, len(numbers) - tasks


def _task(number: int, row: Row, source: str) -> Row | None:
    """Return the task of a row; None if it cannot be played."""
    for name in COLUMNS:
        if not isinstance(row.get(name), str | None) or name not in row:
            have = f"has {', '.join(map(repr, row)) or 'nothing'}" if name not in row else "has another type there"
            raise SweetError(
                f"Row {number:,} has no text {name!r}: it {have}.",
                where=source,
                fix=f"a source with the columns {' and '.join(COLUMNS)}",
            )
    text, idea = (plain((row[name] or "").strip()) for name in COLUMNS)
    page = extract_page(text)
    if page is None or not idea:
        return None
    return {"id": f"websight-{number:05d}", "problem_description": idea, "ground_truth": page}


COLUMNS = ("text", "llm_generated_idea")
"""The columns of WebSight with the page's HTML and its description."""

Row = dict[str, Any]
Rows = Generator[Row, None, None]


def open_rows(source: str, subset: str, revision: str, start: int) -> Rows:
    """Return the rows of a dataset of the hub (`owner/name`), or of a file or folder on this machine.

    Args:
        subset: the configuration of the dataset on the hub.
        start: the number of the first row (from 0).

    Raises:
        UsageError: there is no such file, or it has no such rows. Reading the rows raises the same for invalid rows,
            and the errors of `reaching_hub`.
    """
    path = Path(source).expanduser()
    if not path.exists():
        if path.is_absolute() or source.startswith((".", "~")) or source.count("/") != 1:
            raise UsageError(
                "There is no such file or folder, and it is not the name of a dataset.",
                where=source,
                fix="--source OWNER/NAME, or a folder of Parquet files, a Parquet file or a JSONL file",
            )
        return hub_rows(source, subset, revision, start)
    files = [path] if path.is_file() else sorted(path.glob("*.parquet")) or sorted(path.glob("*.jsonl"))
    if not files:
        below = sorted({file.parent for file in (*path.glob("*/*.parquet"), *path.glob("*/*.jsonl"))})
        what = "There is no Parquet or JSONL file in this folder."
        raise UsageError(what, where=path, fix=f"--source {below[-1] if below else 'FOLDER'}")
    if any(file.suffix != ".parquet" for file in files):
        lines = (line for file in files for line in read_rows(file))
        return (row for _, row in itertools.islice(lines, start, None))
    load = partial(_datasets().load_dataset, "parquet", data_files=[str(file) for file in files])
    return _streamed(str(path), start, load)


def hub_rows(dataset: str, subset: str, revision: str, start: int) -> Rows:
    """Yield the rows of a dataset with a card: one of the hub, or a local copy."""
    load = partial(_datasets().load_dataset, dataset, subset, revision=revision)
    with reaching_hub(dataset, AGAIN):
        yield from _streamed(dataset, start, load)


def _streamed(where: str, start: int, load: Callable[..., Any]) -> Rows:
    """Yield rows of the library datasets, which reports invalid data as a ValueError of its own or of Arrow."""
    try:
        yield from load(split="train", streaming=True, columns=list(COLUMNS)).skip(start)
    except ValueError as error:
        first = str(error).strip().partition("\n")[0]
        raise SweetError(
            f"The dataset cannot be read: {first}",
            where=where,
            fix=f"an existing --subset; the columns must be {' and '.join(COLUMNS)}",
        ) from error


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            "Datasets of the hub and Parquet files require the package datasets.",
            where="--source",
            fix=f"{install_command('data')}, or --source FILE.jsonl with the same columns",
        ) from error
    datasets.disable_progress_bars()
    return datasets
