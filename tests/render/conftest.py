"""The browsers that the tests of a module share, and the assets of their pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweet.render.assets import ASSETS
from tests.render.real_browser import Shared, needs_playwright


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with a stylesheet of one line instead of Tailwind."""
    content = b"h1 { text-transform: none; letter-spacing: 1px }"
    folder = tmp_path_factory.mktemp("assets")
    (folder / ASSETS[0].name).write_bytes(content)
    small = replace(ASSETS[0], sha256=hashlib.sha256(content).hexdigest())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweet.render.assets.ASSETS", (small, *ASSETS[1:]))
        yield folder


@pytest.fixture(scope="module")
def shared(assets: Path) -> Iterator[Shared]:
    there = Shared(assets, "direct")
    yield there
    there.close()


@pytest.fixture(scope="module")
def by_playwright(assets: Path) -> Iterator[Shared]:
    there = Shared(assets, "playwright")
    yield there
    there.close()


@pytest.fixture(params=["shared", pytest.param("by_playwright", marks=needs_playwright)])
def either(request: pytest.FixtureRequest) -> Shared:
    there: Shared = request.getfixturevalue(request.param)
    return there
