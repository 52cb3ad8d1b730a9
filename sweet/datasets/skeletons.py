"""Folders that are written whole, from templates of the package.

A template's file has the suffix `.in` and placeholders such as `@name@`; the folder `package` in it gets the name of
the Python package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path

from sweet.errors import UsageError

_SUFFIX = ".in"


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder whose content is moved to `folder`, which may not exist yet, when the block ends normally.

    Raises:
        UsageError: the folder is not empty, or is a file.
    """
    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError("The folder already exists and is not empty.", where=folder, fix="name a new folder")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        yield Path(temporary)
        for entry in sorted(Path(temporary).iterdir()):
            entry.rename(target / entry.name)


def copy_skeleton(source: Traversable, target: Path, values: Mapping[str, str]) -> int:
    """Copy a folder of templates and fill their placeholders. Return the number of files.

    Args:
        values: of the placeholders by their names, `package` among them.
    """
    count = 0
    for entry in source.iterdir():
        if entry.is_dir():
            folder = target / (values["package"] if entry.name == "package" else entry.name)
            folder.mkdir()
            count += copy_skeleton(entry, folder, values)
        elif entry.name.endswith(_SUFFIX):
            name = entry.name.removesuffix(_SUFFIX)
            file = target / (".gitignore" if name == "gitignore" else name)
            file.write_text(_fill(entry.read_text("utf-8"), values), encoding="utf-8")
            count += 1
    return count


def _fill(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
