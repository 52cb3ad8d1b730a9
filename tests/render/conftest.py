"""The browsers that the tests share, and the assets of their pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweet.render.assets import ASSETS
from tests.render.real_browser import Shared

SMALL = b"h1 { text-transform: none; letter-spacing: 1px }"


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assets")
    (folder / ASSETS[0].name).write_bytes(SMALL)
    return folder


@pytest.fixture(scope="module")
def assets(folder: Path) -> Iterator[Path]:
    """A store with a stylesheet of one line instead of Tailwind."""
    small = replace(ASSETS[0], sha256=hashlib.sha256(SMALL).hexdigest())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweet.render.assets.ASSETS", (small, *ASSETS[1:]))
        yield folder


@pytest.fixture(scope="package")
def pools() -> Iterator[list[Shared]]:
    """The pool, once it has been asked for."""
    found: list[Shared] = []
    yield found
    for there in found:
        there.close()


@pytest.fixture(scope="module")
def shared(assets: Path, pools: list[Shared]) -> Shared:
    if not pools:
        pools.append(Shared(assets))
    return pools[0]
