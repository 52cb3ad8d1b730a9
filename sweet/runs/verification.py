"""Checks that an artifact is as it was finished, before it is read: its size, the number of its rows, and its sha256.

The size is looked up and the rows are counted every time, which costs little beside parsing them. The sha256 of a large
file is computed once for its path, size, modification time and inode (sweet.runs.cache).
"""

from __future__ import annotations

from pathlib import Path

from sweet.errors import InputError
from sweet.regular import check_any, check_file, open_regular
from sweet.runs.cache import cached_sha256
from sweet.runs.content import file_sha256, measure, size_of
from sweet.runs.jsonl import bounded_lines, is_object
from sweet.runs.manifest import Artifact

_WORTH_CACHING = 1 << 20
"""Bytes from which reading a file takes longer than looking up its sum."""


def check_size(path: Path, artifact: Artifact, again: str) -> None:
    """Check that an artifact has the size with which it was finished. Without a record of it nothing is checked.

    Args:
        again: what makes it again.

    Raises:
        InputError: it has another size, or is not a regular file, or a folder of these.
    """
    check_any(path)
    if artifact.sha256 is None or not artifact.bytes:
        return
    if (size := size_of(path)) != artifact.bytes:
        _check_rows(path, artifact, again)
        raise _changed(path, artifact, f"it has {size:,} of {artifact.bytes:,} bytes", again)


def check_content(path: Path, artifact: Artifact, again: str, *, sums: bool) -> None:
    """Check that an artifact has the size and the rows with which it was finished, and its sha256.

    Args:
        again: what makes it again.
        sums: whether its sha256 is computed.

    Raises:
        InputError: it is another, or is not a regular file, or a folder of these.
    """
    check_size(path, artifact, again)
    if artifact.sha256 is None:
        return
    _check_rows(path, artifact, again)
    if sums and measure(path, _sum).sha256 != artifact.sha256:
        as_it_is = f"{again}; --no-verify uses it as it is"
        raise _changed(path, artifact, "its size is the same and its sha256 is another", as_it_is)


def _check_rows(path: Path, artifact: Artifact, again: str) -> None:
    """Count the rows of a file as `read_jsonl` does, without empty lines and a torn last one."""
    if artifact.rows is None:
        return
    with open_regular(path) as file:
        lines = bounded_lines(file, path)
        rows = sum(not line.isspace() and (line.endswith(b"\n") or is_object(line)) for line in lines)
    if rows != artifact.rows:
        raise _changed(path, artifact, f"it has {rows:,} of {artifact.rows:,} rows", again)


def _sum(file: Path) -> str:
    check_file(file)
    return cached_sha256(file, file_sha256) if file.stat().st_size >= _WORTH_CACHING else file_sha256(file)


def _changed(path: Path, artifact: Artifact, how: str, again: str) -> InputError:
    what = f"{artifact.id} is not as it was finished: {how}."
    return InputError(what, path=path, fix=f"restore it from a copy, or make it again: {again}")
