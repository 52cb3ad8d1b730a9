from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.render.page import Block, Reason, RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.store import ScreenshotStore

BLOCK = Block("h1", "Großer Titel", 0.5, 1.25, 640.0, 48.0, "#112233", "", 32.0, True, False)
SHOT = Screenshot(b"\x89PNG not really", 1280, 720, (BLOCK, dataclasses.replace(BLOCK, tag="p", text="\U0001f600")))
KEY = page_key("<html></html>", RenderSettings())


@pytest.fixture
def store(tmp_path: Path) -> ScreenshotStore:
    return ScreenshotStore(tmp_path / "screenshots")


def test_a_stored_result_is_read_back(store: ScreenshotStore) -> None:
    assert store.get(KEY) is None
    store.put(KEY, SHOT)
    assert store.get(KEY) == SHOT
    assert store.picture(KEY).read_bytes() == SHOT.png
    assert store.picture(KEY).parent.name == KEY[:2]
    assert sorted(file.suffix for file in store.picture(KEY).parent.iterdir()) == [".json", ".png"]


def test_lasting_failures_are_stored(store: ScreenshotStore) -> None:
    store.put(KEY, RenderFailed("too_large", "The page has too many bytes."))
    found = store.get(KEY)
    assert isinstance(found, RenderFailed)
    assert (found.reason, str(found)) == ("too_large", "The page has too many bytes.")


@pytest.mark.parametrize("reason", ["timeout", "memory", "crashed"])
def test_failures_that_depend_on_the_load_are_not_stored(store: ScreenshotStore, reason: Reason) -> None:
    store.put(KEY, RenderFailed(reason, "The page was not done within 15 seconds."))
    assert store.get(KEY) is None
    store.put(KEY, RenderFailed("blocked", "x"))
    file = store.picture(KEY).with_suffix(".json")
    file.write_text(file.read_text().replace("blocked", reason))  # nor are they read
    assert store.get(KEY) is None


@pytest.mark.parametrize("suffix", [".png", ".json"])
def test_an_incomplete_screenshot_counts_as_missing(store: ScreenshotStore, suffix: str) -> None:
    store.put(KEY, SHOT)
    file = store.picture(KEY).with_suffix(suffix)
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert store.get(KEY) is None
    file.unlink()
    assert store.get(KEY) is None
    store.put(KEY, SHOT)
    assert store.get(KEY) == SHOT


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, KEY[:-1], f"{KEY}\n"])
def test_only_keys_become_paths(store: ScreenshotStore, key: str) -> None:
    with pytest.raises(ValueError, match="not the key"):
        store.get(key)


@given(st.text(st.characters()), st.text(st.characters()))
def test_pages_have_different_keys(one: str, other: str) -> None:
    settings = RenderSettings()
    assert (page_key(one, settings) == page_key(other, settings)) == (one == other)


def test_settings_change_the_key() -> None:
    page = "<html>\ud800</html>"
    assert len({page_key(page, RenderSettings(width=width)) for width in (640, 1280)}) == 2
