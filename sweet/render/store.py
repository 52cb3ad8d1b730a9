"""Screenshots on disk, by what they were made from: `FOLDER/ab/abcdef….png` with `abcdef….json` beside it.

The JSON file holds the size, the visible blocks and the picture's sha256, or why the page failed. A failure that
depends on how busy the machine is, as a time-out does, is not kept. Both appear whole or not at all; the JSON file
comes last, and without it there is no screenshot. What does not fit together, or cannot be read, counts as not there
and is made again. Any number of processes may use one folder: whoever writes the same key writes the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sweet.files import write_whole
from sweet.render.page import Block, Reason, RenderFailed, Screenshot

SCREENSHOTS = "screenshots"
"""The folder of a run that holds what its pages came to: those the human saw, those that were scored, references."""

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


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    result: _Shot | _Failure


class ScreenshotStore:
    """The screenshots and lasting failures of one folder, which is made when the first is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def picture(self, key: str) -> Path:
        """Where the picture of a key lies, if there is one.

        Raises:
            ValueError: it is not a key (see `sweet.render.page.page_key`).
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"not the key of a page: {key[:80]!r}")
        return self.folder / key[:2] / f"{key}.png"

    def get(self, key: str) -> Screenshot | RenderFailed | None:
        """What came of a page; None where it has not been rendered."""
        picture = self.picture(key)
        try:
            record = _Record.model_validate_json(picture.with_suffix(".json").read_bytes())
            if isinstance(record.result, _Failure):
                failure = RenderFailed(record.result.failed, record.result.detail)
                return failure if failure.lasting else None
            png = picture.read_bytes()
        except (OSError, ValidationError):
            return None
        found = record.result
        shot = Screenshot(png, found.width, found.height, found.blocks)
        return shot if shot.sha256 == found.sha256 else None

    def has(self, key: str) -> bool:
        """Whether something is kept of a page; it is not read."""
        return self.picture(key).with_suffix(".json").is_file()

    def put(self, key: str, result: Screenshot | RenderFailed) -> None:
        """Keep what came of a page, unless it is a failure that may not come again."""
        picture = self.picture(key)
        if isinstance(result, RenderFailed) and not result.lasting:
            return
        if isinstance(result, RenderFailed):
            record = _Record(result=_Failure(failed=result.reason, detail=result.detail))
        else:
            write_whole(picture, result.png)
            record = _Record(
                result=_Shot(sha256=result.sha256, width=result.width, height=result.height, blocks=result.blocks)
            )
        write_whole(picture.with_suffix(".json"), record.model_dump_json().encode())
