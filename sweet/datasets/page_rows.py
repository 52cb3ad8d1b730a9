"""Where rows of descriptions and pages come from: a dataset of the model hub, Parquet files, JSON lines.

The hub's dataset is streamed, and only the columns that are wanted: its screenshots, nearly all of its bytes, are
neither fetched nor decoded. Rows keep the order of their files, so that a row's number is its name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from sweet.datasets.hub import reaching_hub
from sweet.errors import SweetError, UsageError
from sweet.installation import install_command
from sweet.runs.jsonl import read_rows

COLUMNS = ("text", "llm_generated_idea")
"""The page's HTML and its description, as WebSight names them."""

Row = dict[str, Any]
Rows = Callable[[int], Generator[Row, None, None]]
"""The rows of a source from this number (from 0) on."""


def open_rows(source: str, subset: str, revision: str, again: str) -> Rows:
    """The rows of a dataset of the hub (`owner/name`), or of a file or folder on this machine.

    Args:
        subset: the configuration of the dataset, on the hub.
        again: the command that goes on once the hub can be reached.

    Raises:
        UsageError: there is no such file, or it holds no such rows. The rows raise the same where they are wrong, and
            what `reaching_hub` raises.
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
    """The rows of a dataset with a card: one of the hub, or a copy of it."""
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
    """Rows of the library datasets. What it finds wrong with the data comes as a ValueError of Arrow or its own."""
    try:
        yield from load().skip(start)
    except ValueError as error:
        first = str(error).strip().partition("\n")[0]
        raise SweetError(
            f"The dataset cannot be read: {first}",
            where=where,
            fix=f"a --subset that it has; the columns must be {' and '.join(COLUMNS)}",
        ) from error


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            "Datasets of the hub and Parquet files need the package datasets.",
            where="--source",
            fix=f"{install_command('data')}, or --source FILE.jsonl with the same columns",
        ) from error
    datasets.disable_progress_bars()
    return datasets
