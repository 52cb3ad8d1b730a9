"""`sweet data websight`: build the frontend tasks of ColBench from WebSight on the model hub.

A task is made from a row: the agent gets its description, and its page is the reference. Train is the first 10,000 rows
of WebSight v0.2 and test the following 10,000, of which the paper plays the first 500. A task is named after its row,
`websight-00042`, independent of other rows. Rows without a page or a description are skipped.

A split is written to a hidden file in the same folder, one line per task, and renamed when it is complete. A stopped
build resumes after its last complete line if the source still has the same row there; otherwise it starts again.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import Field

from sweet.datasets.hub import reaching_hub
from sweet.datasets.metrics import WebSightMetrics
from sweet.errors import InputError, SweetError, UsageError
from sweet.files import replacing
from sweet.installation import install_command
from sweet.paths import data_folder
from sweet.runs.jsonl import JsonlWriter, encode, plain, read_rows, scan_jsonl
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import HubConfig
from sweet.tasks.files import websight_file
from sweet.tasks.html.page import extract_page
from sweet.units import count

WEBSIGHT = "HuggingFaceM4/WebSight"
AGAIN = "sweet data websight"

Split = Literal["train", "test"]
ROWS: dict[Split, range] = {"train": range(10_000), "test": range(10_000, 20_000)}
"""The rows of each split."""

_ID = re.compile(r"websight-(\d{5,})")


class WebSightConfig(HubConfig):
    source: str = WEBSIGHT
    """Dataset on the hub, or a folder of Parquet files, a Parquet file or a JSONL file with the same columns."""
    subset: str = "v0.2"
    """Configuration of the dataset on the hub."""
    split: str | None = None
    """Only this split: train or test."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first rows of each split; a later call with a larger limit continues."""


def run_data_websight(config: WebSightConfig, reporter: Reporter) -> StageResult[WebSightMetrics]:
    """Build the missing splits. The result's `run` is the data folder.

    Raises:
        UsageError: the source does not exist or has another form, or another process is building.
        ServerError: the hub could not be reached; fetched rows are kept.
        SweetError: the hub refused access, or the source ends too early.
    """
    folder = data_folder() / "websight"
    folder.mkdir(parents=True, exist_ok=True)
    splits = [split for split in ROWS if config.split in (None, split)]
    if not splits:
        raise UsageError(f"WebSight has no split {config.split}.", where="--split", fix="train or test")
    metrics: dict[str, int | str] = {}
    try:
        with FileLock(folder / ".lock", timeout=0):
            for split in splits:
                metrics |= _SplitBuilder(split, config, reporter).metrics()
    except Timeout as error:
        raise UsageError("Another process is building WebSight's splits.", where=folder, fix="wait for it") from error
    return StageResult("data websight", folder, WebSightMetrics.model_validate(metrics))


@dataclass(frozen=True)
class _SplitBuilder:
    """Builds one split."""

    split: Split
    config: WebSightConfig
    reporter: Reporter

    @property
    def rows(self) -> range:
        return ROWS[self.split][: self.config.limit]

    @property
    def file(self) -> Path:
        return websight_file(self.split)

    @property
    def unfinished(self) -> Path:
        """The file of the unfinished split."""
        return self.file.with_name(f".{self.file.name}.begun")

    def metrics(self) -> dict[str, int | str]:
        """Build the split if it is missing. Return the numbers of its tasks and skipped rows, and the file's sha256."""
        last = None if self.config.force else self._last_built()
        if last is None or last + 1 < self.rows.stop:
            self._grow()
            last = self._finish()
        tasks = sum(1 for _ in scan_jsonl(self.file))
        rows = max(last + 1, self.rows.stop) - self.rows.start
        if rows > tasks:
            self.reporter.warn(
                f"Without a page or a description: {rows - tasks:,} of {count(rows, 'row')} of the split {self.split}."
            )
        with self.file.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {self.split: tasks, f"{self.split}_passed_over": rows - tasks, f"{self.split}_sha256": digest}

    def _last_built(self) -> int | None:
        """Return the number of the last row in the split's file; None without a file."""
        if not self.file.is_file():
            return None
        try:
            last = _last(self.file)
        except InputError:
            last = None
        if last is None:
            raise UsageError(
                "This file was not made by this command.",
                where=self.file,
                fix=f"move it away, or {AGAIN} --force to replace it",
            )
        return _number(last)

    def _grow(self) -> None:
        """Fetch the rows that the unfinished split lacks."""
        last = self._resumed()
        at = self.rows.start if last is None else _number(last)
        if at + 1 >= self.rows.stop and last is not None:
            return
        source = open_rows(self.config.source, self.config.subset, self.config.revision, AGAIN)
        rows = source(at)
        if last is not None and not self._continues(last, next(rows, None)):
            self.reporter.warn(f"Row {at} of the source has changed: {self.split} starts again.")
            self.unfinished.unlink()
            rows.close()
            last, at = None, self.rows.start
            rows = source(at)
        numbers = self.rows[at - self.rows.start + (last is not None) :]
        self.reporter.say(f"Fetching rows {numbers.start:,} to {numbers.stop - 1:,} of {self.config.source}.")
        with closing(rows), JsonlWriter(self.unfinished) as writer:
            self._write(numbers, rows, writer)

    def _continues(self, last: Row, row: Row | None) -> bool:
        """Return whether the last task was made from this `row` of the source."""
        return row is not None and _task(_number(last), row, self.config.source) == last

    def _write(self, numbers: range, rows: Iterator[Row], writer: JsonlWriter) -> None:
        with self.reporter.progress(self.split, len(self.rows)) as bar:
            bar.advance(len(self.rows) - len(numbers))
            for number in numbers:
                row = next(rows, None)
                if row is None:
                    raise SweetError(
                        f"The source ends after row {number - 1:,}; {self.split} is rows "
                        f"{self.rows.start:,} to {self.rows.stop - 1:,}.",
                        where=self.config.source,
                        fix="a source with more rows, or a smaller --limit",
                    )
                task = _task(number, row, self.config.source)
                if task is not None:
                    writer.write(task)
                bar.advance()

    def _resumed(self) -> Row | None:
        """Return the last existing task; None if the build starts again."""
        if self.config.force:
            self.unfinished.unlink(missing_ok=True)
        elif self.file.is_file() and not self.unfinished.exists():  # it was made with a smaller limit
            shutil.copyfile(self.file, self.unfinished)
        if not self.unfinished.exists():
            return None
        JsonlWriter(self.unfinished).close()  # removes an incomplete line
        try:
            last = _last(self.unfinished)
        except InputError:
            last = None
        if last is None or _number(last) not in ROWS[self.split]:
            self.unfinished.unlink()
            return None
        return last

    def _finish(self) -> int:
        """Write the finished split. Return the number of its last row."""
        last = -1
        with replacing(self.file) as file:
            for task in scan_jsonl(self.unfinished):
                if _number(task) >= self.rows.stop:  # it was started with a larger limit
                    break
                last = _number(task)
                file.write(encode(task) + b"\n")
            if last < 0:
                raise SweetError(
                    f"No row has a page and a description, as {' and '.join(COLUMNS)}.",
                    where=self.config.source,
                    fix=f"{AGAIN} --force with another --source",
                )
        self.unfinished.unlink()
        return last


def _last(path: Path) -> Row | None:
    """Return the last task of a file; None if there is none, or if it is not a task of WebSight."""
    row = next(iter(deque(scan_jsonl(path), maxlen=1)), None)
    return row if row is not None and _ID.fullmatch(str(row.get("id"))) else None


def _number(task: Row) -> int:
    """Return the number of the row that a task was made from."""
    return int(str(task["id"]).rpartition("-")[2])


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
Rows = Callable[[int], Generator[Row, None, None]]
"""Returns the rows of a source, beginning at a number (from 0)."""


def open_rows(source: str, subset: str, revision: str, again: str) -> Rows:
    """Open a dataset of the hub (`owner/name`), or a file or folder on this machine.

    Args:
        subset: the configuration of the dataset on the hub.
        again: the command to repeat once the hub can be reached.

    Raises:
        UsageError: there is no such file, or it has no such rows. Reading the rows raises the same for invalid rows,
            and the errors of `reaching_hub`.
    """
    path = Path(source).expanduser()
    if path.exists():
        return _local(path)
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") != 1:
        raise UsageError(
            "There is no such file or folder, and it is not the name of a dataset.",
            where=source,
            fix="--source OWNER/NAME, or a folder of Parquet files, a Parquet file or a JSONL file",
        )
    return hub_rows(source, subset, revision, again)


def hub_rows(dataset: str, subset: str, revision: str, again: str) -> Rows:
    """Open a dataset with a card: one of the hub, or a local copy."""
    load = _datasets().load_dataset

    def rows(start: int) -> Generator[Row, None, None]:
        with reaching_hub(dataset, again):
            yield from _streamed(
                dataset,
                start,
                lambda: load(dataset, subset, revision=revision, split="train", streaming=True, columns=list(COLUMNS)),
            )

    return rows


def _local(path: Path) -> Rows:
    if path.is_file():
        files = [path]
    else:
        files = sorted(path.glob("*.parquet")) or sorted(path.glob("*.jsonl"))
        if not files:
            below = sorted({file.parent for file in (*path.glob("*/*.parquet"), *path.glob("*/*.jsonl"))})
            raise UsageError(
                "There is no Parquet or JSONL file in this folder.",
                where=path,
                fix=f"--source {below[-1] if below else 'FOLDER'}",
            )
    if all(file.suffix == ".parquet" for file in files):
        return _parquet(path, files)
    return lambda start: _lines(files, start)


def _lines(files: list[Path], start: int) -> Generator[Row, None, None]:
    rows = (row for file in files for _, row in read_rows(file))
    yield from itertools.islice(rows, start, None)


def _parquet(path: Path, files: list[Path]) -> Rows:
    load = _datasets().load_dataset
    names = [str(file) for file in files]

    def rows(start: int) -> Generator[Row, None, None]:
        return _streamed(
            str(path),
            start,
            lambda: load("parquet", data_files=names, split="train", streaming=True, columns=list(COLUMNS)),
        )

    return rows


def _streamed(where: str, start: int, load: Callable[[], Any]) -> Generator[Row, None, None]:
    """Yield rows of the library datasets, which reports invalid data as a ValueError of its own or of Arrow."""
    try:
        yield from load().skip(start)
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
