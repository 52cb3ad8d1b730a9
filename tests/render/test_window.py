"""The window and the picture rule: how they are written, chosen by protocol, recorded, and shown by a real browser."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from PIL import Image

from sweet.errors import UsageError
from sweet.render.assets import AssetStore
from sweet.render.browsers import open_browsers
from sweet.render.firefox import find_firefox
from sweet.render.page import RenderSettings, Screenshot, page_key
from sweet.render.photo import PHOTO_FILE, Photo
from sweet.render.window import choose_settings, recorded_settings, window_name, window_size
from tests.render.pictures import save_photo

RED, BLUE = (0xCC, 0x20, 0x20), (0x20, 0x20, 0xCC)


def test_a_window_is_written_as_width_and_height() -> None:
    assert window_size(" 1366X682 ") == (1366, 682)
    for text in ("1366", "1366x", "x682", "1366x682x1", "-5x682", "1366 x 682"):
        with pytest.raises(ValueError, match="WIDTHxHEIGHT"):
            window_size(text)
    for text in ("0x682", "1366x99999", "100x100"):
        with pytest.raises(ValueError, match="between 320 and 4096"):
            window_size(text)


def test_screenshots_of_other_windows_and_pictures_are_kept_apart() -> None:
    default = RenderSettings()
    others = [RenderSettings(1366, 682), RenderSettings(1280, 682), default.showing("photo@0123456789ab")]
    assert len({page_key("<html></html>", settings) for settings in (default, *others)}) == 4
    assert recorded_settings(None, None) == default
    assert all(recorded_settings(window_name(one), one.pictures) == one for one in (default, *others))


def test_protocol_upstream_chooses_the_published_window_and_the_photograph_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path))
    said: list[str] = []
    assert choose_settings(None, None, upstream=False, say=said.append) == RenderSettings()
    assert said == []
    assert choose_settings(None, None, upstream=True, say=said.append) == RenderSettings(1366, 682)
    assert ["sweet data assets --photo" in line for line in said] == [True]
    with pytest.raises(UsageError, match="has not been downloaded") as caught:
        choose_settings(None, "photo", upstream=False, say=said.append)
    assert caught.value.fix == "sweet data assets --photo"
    assert caught.value.where == str(tmp_path / "assets" / PHOTO_FILE)
    rule = save_photo(tmp_path / "assets")
    assert choose_settings(None, None, upstream=True, say=said.append) == RenderSettings(1366, 682).showing(rule)
    assert choose_settings("800x600", "placeholder", upstream=True, say=said.append) == RenderSettings(800, 600)
    assert choose_settings(None, None, upstream=False, say=said.append) == RenderSettings()
    assert choose_settings(None, "photo", upstream=False, say=said.append) == RenderSettings().showing(rule)
    assert len(said) == 1
    (tmp_path / "assets" / PHOTO_FILE).write_bytes(b"<html>Please log in</html>")
    with pytest.raises(UsageError, match="not the photograph") as caught:
        choose_settings(None, None, upstream=True, say=said.append)
    assert caught.value.fix == "sweet data assets --photo --force"


def pixels(png: bytes, *places: tuple[int, int]) -> list[tuple[int, int, int]]:
    with Image.open(io.BytesIO(png)) as image:
        rgb = image.convert("RGB")
        return [tuple(rgb.getpixel(place)) for place in places]  # type: ignore[arg-type,misc]


def near(found: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    return max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= 12


def test_the_photograph_is_scaled_and_cropped_around_its_centre(tmp_path: Path) -> None:
    rule = save_photo(tmp_path)
    photo = Photo(tmp_path, rule)
    for width, height in ((300, 200), (100, 400), (1366, 100), (1, 1), (2500, 30)):
        png = photo.png(width, height)
        with Image.open(io.BytesIO(png)) as image:
            assert (image.format, image.size) == ("PNG", (width, height))
        if width > 50:
            left, right = pixels(png, (width // 2 - 20, height // 2), (width // 2 + 20, height // 2))
            assert near(left, RED), (width, height)
            assert near(right, BLUE), (width, height)
    with pytest.raises(UsageError, match="another file of the photograph"):
        Photo(tmp_path, "photo@0123456789ab")


def test_only_the_addresses_of_image_48_show_the_photograph(tmp_path: Path) -> None:
    rule = save_photo(tmp_path)
    store, plain = AssetStore(tmp_path, rule), AssetStore(tmp_path)
    for address in ("https://picsum.photos/id/48/300/200", "http://picsum.photos/id/48/300/200.jpg?blur"):
        shown, gradient = store.at(address), plain.at(address)
        assert shown is not None
        assert gradient is not None
        assert shown.content_type == "image/png"
        assert shown.body != gradient.body
        assert near(pixels(shown.body, (20, 100))[0], RED)
    for address in ("https://picsum.photos/id/49/300/200", "https://picsum.photos/300"):
        assert store.at(address) == plain.at(address) != None  # noqa: E711


def test_a_page_shows_the_photograph_in_the_published_window(tmp_path: Path) -> None:
    try:
        find_firefox()
    except UsageError as error:
        pytest.skip(f"pages cannot be rendered here: {error.what}")
    rule = save_photo(tmp_path)
    page = (
        "<html><body style='margin:0'><img style='display:block' src='https://picsum.photos/id/48/600/400'>"
        "<div id='w'></div><script>document.getElementById('w').textContent = innerWidth + 'x' + innerHeight</script>"
    )

    async def work() -> Screenshot:
        async with open_browsers(None, 1, RenderSettings(1366, 682).showing(rule), tmp_path) as pool:
            return await pool.shoot(page)

    shot = asyncio.run(work())
    assert shot.width == 1366
    assert "1366x682" in [block.text for block in shot.blocks]
    left, right, outside = pixels(shot.png, (100, 200), (500, 200), (1300, 200))
    assert near(left, RED)
    assert near(right, BLUE)
    assert outside == (255, 255, 255)
