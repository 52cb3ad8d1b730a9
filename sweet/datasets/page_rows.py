"""Read rows of descriptions and pages from a dataset of the model hub, Parquet files, or JSON lines.

The hub's dataset is streamed with the required columns only: its screenshots, nearly all of its bytes, are neither
fetched nor decoded. Rows keep the order of their files, so that a row is identified by its number.
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
