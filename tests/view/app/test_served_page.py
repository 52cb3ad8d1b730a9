"""`sweet view --serve` in a real Firefox: the terminal that the page draws, by what a user sees, selects and types."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from PIL import Image

from sweet.runs.run import Run
from sweet.tasks.trajectory import Turn
from tests.render.real_browser import needs_firefox
from tests.results.real_page import LOOPBACK, SECONDS, RealPage, real_page, served
from tests.view.conftest import HOSTILE, made, trajectory

pytest.importorskip("textual_serve")
pytestmark = needs_firefox

DRAWN = "document.body.classList.contains('-first-byte')"
FOCUSED = "document.activeElement.classList.contains('xterm-helper-textarea')"
SELECTED = """(() => {
    const options = {clipboardData: new DataTransfer(), bubbles: true, cancelable: true};
    const event = new ClipboardEvent('copy', options);
    document.querySelector('.xterm').dispatchEvent(event);
    return event.clipboardData.getData('text/plain');
})()"""
"""What the terminal gives to the clipboard when the user copies."""
AREA = """(() => {
    const {x, y, width, height} = document.querySelector('.xterm-screen').getBoundingClientRect();
    return [x, y, width, height];
})()"""
FOREIGN = "performance.getEntriesByType('resource').filter((one) => !one.name.startsWith(origin)).length"
SHIFT, ENTER = "\ue008", "\ue007"


@pytest.fixture(scope="module")
def firefox() -> Iterator[RealPage]:
    with real_page({**LOOPBACK, "webgl.disabled": False}) as page:
        yield page


def screen(firefox: RealPage) -> str:
    """Return what the terminal shows: all its cells are selected with the mouse, and copied."""
    x, y, width, height = firefox.value(AREA)
    left, top, right, bottom = round(x + 1), round(y + 1), round(x + width - 1), round(y + height - 1)
    pause = {"type": "pause"}
    mouse = [
        pause,
        {"type": "pointerMove", "x": left, "y": top},
        {"type": "pointerDown", "button": 0},
        {"type": "pointerMove", "x": right, "y": bottom, "duration": 50},
        {"type": "pointerUp", "button": 0},
        pause,
    ]
    # The application gets the mouse; with the shift key the terminal keeps it.
    keys = [{"type": "keyDown", "value": SHIFT}, *[pause] * 4, {"type": "keyUp", "value": SHIFT}]
    firefox.act(
        {"type": "key", "id": "keyboard", "actions": keys}, {"type": "pointer", "id": "mouse", "actions": mouse}
    )
    return str(firefox.value(SELECTED))


def wait_for(firefox: RealPage, word: str) -> str:
    """Wait until the terminal shows this."""
    limit = time.monotonic() + SECONDS
    while word not in (seen := screen(firefox)):
        assert time.monotonic() < limit, (word, seen)
        time.sleep(0.1)
    return seen


def picture(firefox: RealPage) -> bytes:
    """Return what the window shows, once it is more than its background: the page fades in."""
    limit = time.monotonic() + SECONDS
    while True:
        shot = firefox.picture()
        with Image.open(io.BytesIO(shot)) as image:
            if len(image.convert("RGB").getcolors(1 << 24) or []) > 10:  # the edges of letters are smoothed
                return shot
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_the_table_is_drawn_keys_work_and_faint_text_can_be_read(firefox: RealPage, run: Run) -> None:
    with served(run.path) as address:
        firefox.open(address)
        firefox.until(DRAWN)
        firefox.until(FOCUSED)  # before the mouse does anything
        table = wait_for(firefox, "t005")
        assert "6 dialogues" in table
        drawn = picture(firefox)
        firefox.press(ENTER)
        dialogue = wait_for(firefox, "agent 1")
        assert "t005" not in dialogue
        wait_until_drawn_anew(firefox, drawn)

        lines = dialogue.splitlines()
        faint = next(number for number, line in enumerate(lines) if ", expected " in line)
        left, top, _, height = firefox.value(AREA)
        row = height / len(lines)
        box = (left + 60, top + faint * row, left + 300, top + (faint + 1) * row)
        firefox.press("k")  # the terminal then selects nothing: what is selected has other colours
        time.sleep(1)
        wait_until_brighter(firefox, box, 128)
        firefox.press("q")
        wait_for(firefox, "t005")


def wait_until_drawn_anew(firefox: RealPage, drawn: bytes) -> None:
    """Wait until the window shows something else than this picture: the terminal draws its text some frames later."""
    limit = time.monotonic() + SECONDS
    while picture(firefox) == drawn:
        assert time.monotonic() < limit
        time.sleep(0.1)


def wait_until_brighter(firefox: RealPage, box: tuple[float, float, float, float], least: int) -> None:
    """Wait until some pixel of this part of the window has at least this brightness: the page fades in."""
    left, top, right, bottom = map(round, box)
    limit = time.monotonic() + SECONDS
    while True:
        with Image.open(io.BytesIO(picture(firefox))) as image:
            pixels = image.convert("L").crop((left, top, right, bottom))
            found = max(value for value, count in enumerate(pixels.histogram()) if count)
        if found >= least:
            return
        assert time.monotonic() < limit, found
        time.sleep(0.1)


def test_texts_of_models_do_nothing_in_the_page(firefox: RealPage, run: Run) -> None:
    hostile = f"{HOSTILE}<img src=x onerror=document.title='img'><script>document.title='script'</script>"
    said = Turn(role="assistant", content=hostile)
    first = trajectory(0).dialogue_history[0]
    rows = [trajectory(n, id=f"a{n}{HOSTILE}", dialogue_history=(first, said)) for n in range(3)]
    made(run, "rollout", "rollouts", rows, [], number=1)
    with served(run.path) as address:
        firefox.open(address)
        firefox.until(DRAWN)
        before = firefox.value("document.title")
        wait_for(firefox, "a2")
        firefox.press(ENTER)
        seen = wait_for(firefox, "onerror=document.title")  # as text
        assert "\u202e" not in seen
        assert firefox.value("document.title") == before
        assert firefox.value("document.querySelectorAll('img, .xterm script').length") == 0
        assert firefox.value(FOREIGN) == 0, "nothing is loaded from elsewhere"
