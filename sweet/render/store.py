"""Screenshots on disk, named by the key of their page: `FOLDER/ab/abcdef….png` and `abcdef….json`.

The JSON file contains the size, the visible blocks and the PNG's sha256, or the reason of a failure. A failure that may
depend on the load of the machine, such as a time-out, is not stored. Both files are written atomically, the JSON file
last; without it there is no screenshot. Files that are inconsistent or cannot be read count as missing, and the page is
rendered again. Any number of processes may use one folder: for the same key they write the same content.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sweet.files import write_whole
from sweet.regular import read_regular
from sweet.render.page import Block, Reason, RenderFailed, Screenshot

SCREENSHOTS = "screenshots"
"""The folder of a run for the screenshots of all its pages: shown to the human, scored, and references."""

LARGEST = 1 << 26
"""Most bytes of a file that is read; pictures that are written have at most 16 MB."""

_KEY = re.compile(r"[0-9a-f]{64}")


class _Shot(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: str
    width: int
    height: int
    blocks: tuple[Block, ...]


class _Failure(BaseModel):
    model_config = ConfigDict(extra="forbid")

    failed: Reason
    detail: str


_RECORD: TypeAdapter[_Shot | _Failure] = TypeAdapter(_Shot | _Failure)


class ScreenshotStore:
    """The screenshots and lasting failures in one folder, which is created with the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def picture(self, key: str) -> Path:
        """Return the path of the PNG of a key, which may not exist.

        Raises:
            ValueError: it is not a key (see `sweet.render.page.page_key`).
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"not the key of a page: {key[:80]!r}")
        return self.folder / key[:2] / f"{key}.png"

    def get(self, key: str) -> Screenshot | RenderFailed | None:
        """Return the stored result of a page, or None.

        Raises:
            InputError: in a run, the path is a link, or something else that is not a file.
        """
        picture = self.picture(key)
        try:
            record = _RECORD.validate_json(read_regular(picture.with_suffix(".json"), LARGEST))
            if isinstance(record, _Failure):
                failure = RenderFailed(record.failed, record.detail)
                return failure if failure.lasting else None
            png = read_regular(picture, LARGEST)
        except (OSError, ValidationError):
            return None
        shot = Screenshot(png, record.width, record.height, record.blocks)
        return shot if shot.sha256 == record.sha256 else None

    def put(self, key: str, result: Screenshot | RenderFailed) -> None:
        """Store the result of a page, unless it is a failure that may not happen again."""
        picture = self.picture(key)
        if isinstance(result, RenderFailed) and not result.lasting:
            return
        if isinstance(result, RenderFailed):
            record: _Shot | _Failure = _Failure(failed=result.reason, detail=result.detail)
        else:
            write_whole(picture, result.png)
            record = _Shot(sha256=result.sha256, width=result.width, height=result.height, blocks=result.blocks)
        write_whole(picture.with_suffix(".json"), record.model_dump_json().encode())
