"""The browsers that the tests share, and the assets of their pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweet.render.assets import ASSETS
from tests.render.real_browser import Shared, needs_playwright

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
def pools() -> Iterator[dict[str, Shared]]:
    """By driver, those that have been asked for."""
    found: dict[str, Shared] = {}
    yield found
    for there in found.values():
        there.close()


def pool_of(pools: dict[str, Shared], driver: str, assets: Path) -> Shared:
    if driver not in pools:
        pools[driver] = Shared(assets, driver)
    return pools[driver]


@pytest.fixture(scope="module")
def shared(assets: Path, pools: dict[str, Shared]) -> Shared:
    return pool_of(pools, "direct", assets)


@pytest.fixture(scope="module")
def by_playwright(assets: Path, pools: dict[str, Shared]) -> Shared:
    return pool_of(pools, "playwright", assets)


@pytest.fixture(params=["shared", pytest.param("by_playwright", marks=needs_playwright)])
def either(request: pytest.FixtureRequest) -> Shared:
    there: Shared = request.getfixturevalue(request.param)
    return there
