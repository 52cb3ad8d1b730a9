"""Real pages in a real Firefox: the result is correct and reproducible, and nothing leaks out or is left behind."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sweet.errors import UsageError
from sweet.render.assets import AssetStore, placeholder
from sweet.render.browser import Browser
from sweet.render.browsers import open_browsers, open_driver
from sweet.render.firefox import Firefox, _table, find_firefox
from sweet.render.page import RenderFailed, Screenshot
from sweet.render.profiles import remove_stale
from sweet.render.serving import certificate
from sweet.render.store import ScreenshotStore
from tests import programs
from tests.render.hostile_pages import PLAIN, annoying_pages, costly_pages, prying_pages, sink
from tests.render.real_browser import PATIENT, Shared, driven, needs_firefox, needs_playwright, outcome

pytestmark = needs_firefox

BOTH = pytest.mark.parametrize("driver", ["direct", pytest.param("playwright", marks=needs_playwright)])

PAGE = """<html>
<head><link href="https://cdn.jsdelivr.net/npm/tailwindcss@2.2.19/dist/tailwind.min.css" rel="stylesheet">
<style>@keyframes spin { to { transform: rotate(1turn) } } .spin { animation: spin 1s infinite }
.fade { opacity: 0; animation: in 5s forwards } @keyframes in { to { opacity: 1 } }
.slide { transition: margin 9s }</style></head>
<body style="margin: 0; background: #ffffff">
<h1 style="font-size: 32px; color: #112233; background: #aabbcc; margin: 0">A&nbsp;title of\n the page</h1>
<img src="https://picsum.photos/id/48/300/200"><input autofocus value="typed">
<div class="spin" style="width: 50px; height: 50px; background: red"></div><p class="fade">faded in</p>
<p class="slide" id="slide">slides</p><p id="clock"></p><p id="place"></p>
<p style="display: none">hidden</p><p style="visibility: hidden">unseen</p><p style="opacity: 0">clear</p>
<script>
document.getElementById("slide").style.marginLeft = "200px";
localStorage.setItem("visits", 1 + Number(localStorage.getItem("visits")));
document.cookie = "seen=1";
document.getElementById("place").textContent = location.href + history.length + document.cookie;
let ticks = 0;
setInterval(() => {
  document.getElementById("clock").textContent = [ticks++, new Date(), Date.now(), Math.random(), performance.now(),
    crypto.getRandomValues(new Uint8Array(4)), new Intl.DateTimeFormat("en", {timeStyle: "full"}).format(),
    localStorage.getItem("visits"), document.lastModified, navigator.language].join(" ");
}, 100);
</script></body></html>"""


def test_the_same_page_gives_the_same_bytes(either: Shared) -> None:
    """In another browser too: test_a_page_that_hangs_is_rendered_again_when_requested_again."""
    found = [either.run(either.pool.shoot(page)) for page in (PAGE, PLAIN, PAGE)]
    assert found[0] == found[2] != found[1]
    look_at(found[0])


@needs_playwright
def test_both_drivers_render_the_same(shared: Shared, by_playwright: Shared) -> None:
    low = "<body style='margin: 0; background: #ff0000'><div style='height: 40px'>low</div></body>"
    flat = "<body style='margin: 0'><p style='position: fixed; right: 0'>of no height</p></body>"
    tall = "<!DOCTYPE html><p style='margin-top: 1500px'>tall</p>"
    for page in (PAGE, low, flat, tall):
        assert shared.run(shared.pool.shoot(page)) == by_playwright.run(by_playwright.pool.shoot(page))


def test_playwrights_own_firefox(assets: Path) -> None:
    async def work() -> None:
        async with open_browsers(None, 1, PATIENT, assets) as pool:
            look_at(await pool.shoot(PAGE))

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SWEET_FIREFOX", raising=False)
        patch.delenv("SWEET_BROWSER_DRIVER", raising=False)
        if not find_firefox().bundled:
            pytest.skip("Playwright's own Firefox is not installed (playwright install firefox)")
        asyncio.run(work())


def look_at(shot: Screenshot) -> None:
    from PIL import Image

    blocks = {block.text.split(" ")[0] or block.tag: block for block in shot.blocks}
    title = blocks["A"]
    assert (title.tag, title.text, title.color, title.background) == ("h1", "A title of the page", "#112233", "#aabbcc")
    assert (title.x, title.y, title.width, title.font_size, title.bold) == (0, 0, 1280, 32, True)
    assert (blocks["img"].image, blocks["img"].width, blocks["img"].height) == (True, 300, 200)
    assert blocks["typed"].tag == "input"
    assert (blocks["slides"].x, "faded" in blocks) == (200, True)
    assert (blocks["slides"].text_x, title.text_x) == (200, 0)
    assert 100 < title.text_width < title.width
    assert (blocks["typed"].text_x, blocks["typed"].text_width) == (0, 0)
    assert not {"hidden", "unseen", "clear"} & set(blocks)
    assert "Mon Jan 01 2024 12:00:01 GMT+0000 (Coordinated Universal Time)" in blocks["9"].text
    with Image.open(io.BytesIO(shot.png)) as picture:
        assert picture.size == (shot.width, shot.height) == (1280, shot.height)
        plain = picture.convert("RGB")
        assert plain.getpixel((1000, 5)) == (0xAA, 0xBB, 0xCC)
        box = blocks["img"]
        with Image.open(io.BytesIO(placeholder(300, 200, "id/48/"))) as given:
            at = plain.getpixel((int(box.x) + 150, int(box.y) + 100))
            wanted = given.getpixel((150, 100))
        assert isinstance(at, tuple)
        assert isinstance(wanted, tuple)
        assert all(abs(a - b) <= 2 for a, b in zip(at, wanted, strict=True))


def test_results_and_failures_are_stored(shared: Shared, tmp_path: Path) -> None:
    pool, bad_pages = shared.pool, (" \n", "x" * 3_000_000)

    async def work() -> None:
        first = await asyncio.gather(*[outcome(pool, PLAIN) for _ in range(3)])
        assert first[0] is first[1] is first[2]
        bad = [await outcome(pool, page) for page in (*bad_pages, gone)]
        assert [getattr(each, "reason", None) for each in bad] == ["empty", "too_large", "blocked"]
        tall = await outcome(pool, costly_pages()["100,000 px"])
        assert isinstance(tall, Screenshot)
        assert (tall.width, tall.height) == (1280, PATIENT.max_height)
        given = pool.given
        assert await outcome(pool, PLAIN) == first[0]
        assert [str(await outcome(pool, gone)), await outcome(pool, tall_page)] == [str(bad[2]), tall]
        assert pool.given == given

    gone = annoying_pages()["to another scheme"]
    tall_page = costly_pages()["100,000 px"]
    pool.store = ScreenshotStore(tmp_path / "kept")
    try:
        shared.run(work())
    finally:
        pool.store = None
    assert len(list((tmp_path / "kept").rglob("*.png"))) == 2
    assert len(list((tmp_path / "kept").rglob("*.json"))) == 5


def test_a_page_cannot_navigate_away(shared: Shared) -> None:
    for name in ("to a blank page", "redirects", "reload loop"):
        shot = shared.run(shared.pool.shoot(annoying_pages()[name]))
        assert [block.text for block in shot.blocks] == ["before", "after"]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_page_whose_process_ends_has_crashed(assets: Path) -> None:
    async def work(firefox: Firefox) -> None:
        async with open_driver(firefox) as make:
            browser = Browser(firefox, make, AssetStore(assets), certificate())
            try:
                await browser.start(PATIENT)
                shooting = asyncio.create_task(browser.shoot("<script>for (;;);</script>", "name", PATIENT))
                await asyncio.sleep(0.5)
                assert browser.processes is not None
                for pid in browser.processes.drawing():
                    os.kill(pid, signal.SIGKILL)
                with pytest.raises(RenderFailed) as caught:
                    await shooting
                assert caught.value.reason == "crashed"
                assert not browser.alive
            finally:
                await browser.stop()

    with driven("direct") as firefox:
        asyncio.run(work(firefox))


def test_a_page_that_hangs_is_rendered_again_when_requested_again(
    either: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, started = either.run(either.pool.shoot(PAGE)), either.pool.started
    monkeypatch.setattr(either.pool, "settings", replace(PATIENT, timeout=0.7))
    monkeypatch.setattr(either.pool, "store", ScreenshotStore(tmp_path / "kept"))
    failed = either.run(outcome(either.pool, "<script>for (;;);</script>"))
    assert isinstance(failed, RenderFailed)
    assert failed.reason == "timeout"
    assert not list(tmp_path.rglob("*.json"))
    monkeypatch.undo()
    assert [block.text for block in either.run(either.pool.shoot("<p>next</p>")).blocks] == ["next"]
    assert either.pool.started == started + 1
    assert either.run(either.pool.shoot(PAGE)) == before, "another browser gives the same bytes"


def test_a_page_without_height_has_the_height_of_the_window(shared: Shared) -> None:
    bare = "<body style='margin: 0; background: #ff0000'>{}</body>"
    blank = shared.run(shared.pool.shoot(bare.format("")))
    fixed = shared.run(shared.pool.shoot(bare.format("<p style='position: fixed; right: 0; text-align: right'>x</p>")))
    low = shared.run(shared.pool.shoot(bare.format("<div style='height: 40px'></div>")))
    assert [(shot.width, shot.height) for shot in (blank, fixed, low)] == [(1280, 720), (1280, 720), (1280, 40)]
    assert [block.text for block in fixed.blocks] == ["x"]
    assert blank.png != fixed.png


def test_the_position_of_text_in_its_box(shared: Shared) -> None:
    lines = [f"<p style='margin: 0; text-align: {side}'>word <b>and</b></p>" for side in ("left", "center", "right")]
    shot = shared.run(shared.pool.shoot(f"<!DOCTYPE html><body style='margin: 0'>{''.join(lines)}"))
    left, middle, right = [block for block in shot.blocks if block.tag == "p"]
    assert (left.x, left.width, left.text_x) == (right.x, right.width, 0)
    assert 0 < middle.text_x < right.text_x < 1280 - right.text_width
    assert left.text_width == middle.text_width == right.text_width


def test_a_missing_asset_stops_rendering_and_names_the_command(shared: Shared, assets: Path) -> None:
    with pytest.raises(UsageError) as caught:
        shared.run(shared.pool.shoot("<script src='https://cdn.tailwindcss.com'></script>"))
    assert caught.value.fix == "sweet data assets"
    assert isinstance(shared.run(shared.pool.shoot(PLAIN)), Screenshot)


def test_nothing_leaves_the_machine(shared: Shared) -> None:
    async def work() -> None:
        async with sink() as there:
            plain = await shared.pool.shoot(PLAIN)
            for page in prying_pages(there.port).values():
                await outcome(shared.pool, page)
            for name in ("alert storm", "windows", "to a blank page", "download", "changed builtins"):
                await outcome(shared.pool, annoying_pages()[name])
            assert await shared.pool.shoot(PLAIN) == plain
        assert there.arrived == []

    shared.run(work())
    (profile,) = [browser._window.profile for browser in shared.pool._idle]
    assert profile is not None
    listed = profile.folder / "extensions.json"  # written some seconds after the start, sooner if there are add-ons
    assert not listed.exists() or json.loads(listed.read_text())["addons"] == [], "no add-on runs in it"


@needs_playwright
def test_nothing_leaves_the_machine_by_playwright(by_playwright: Shared) -> None:
    async def work() -> None:
        async with sink() as there:
            await outcome(by_playwright.pool, prying_pages(there.port)["socket"])
            assert isinstance(await by_playwright.pool.shoot(PLAIN), Screenshot)
        assert there.arrived == []

    by_playwright.run(work())


def test_a_memory_bomb_is_ended(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.pool, "settings", replace(PATIENT, max_memory=1500))
    failed = shared.run(outcome(shared.pool, costly_pages()["memory bomb"]))
    assert isinstance(failed, RenderFailed)
    assert failed.reason == "memory"
    assert isinstance(shared.run(shared.pool.shoot(PLAIN)), Screenshot)


CHILD = """
import asyncio, os, sys, tempfile
from sweet.render.browsers import open_browsers

tempfile.tempdir = os.environ["TMPDIR"] = sys.argv[1]

async def main():
    async with open_browsers(None, 1) as pool:
        await pool.shoot("<p>here</p>")
        print("ready", flush=True)
        await pool.shoot("<script>for (;;);</script>")

asyncio.run(main())
"""


def running(folder: Path) -> list[str]:
    """Return the command lines of the browsers that use this folder."""
    return [row.command for row in _table() if str(folder) in row.command and "supervisor" not in row.command]


@BOTH
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_behind(
    number: signal.Signals, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driven(driver):
        child = programs.start(
            ["-c", CHILD, tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            executable=sys.executable,
        )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert running(tmp_path)
        time.sleep(0.3)
        child.send_signal(number)
        child.wait(timeout=90)
        ends = time.monotonic() + 90
        while (left := running(tmp_path)) and time.monotonic() < ends:
            time.sleep(0.2)
        assert not left
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr("sweet.render.profiles.NEW", 0.0)
        remove_stale()
        while list(tmp_path.iterdir()) and time.monotonic() < ends:  # Playwright's driver removes its own folder last
            time.sleep(0.2)
        assert list(tmp_path.iterdir()) == []
    finally:
        child.kill()
        if child.stdout is not None:
            child.stdout.close()
        child.wait()
