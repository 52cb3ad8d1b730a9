"""Pictures of pages: the screen, what a terminal is asked, and the bytes that terminals get that show pictures."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image
from textual.pilot import Pilot

from sweet.render.page import RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.app import graphics
from sweet.view.app.graphics import USUAL_CELL, Graphics, ask, names_kitty
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.viewer import ViewConfig
from tests.packages import hide_package
from tests.render.pictures import png
from tests.view.app.conftest import played, seen
from tests.view.conftest import made
from tests.view.test_run_screenshots import BLUE, RED, REFERENCE, dialogue, page, pages, shot  # noqa: F401

XTERM = {"TERM": "xterm-256color"}
KITTY = {"TERM": "xterm-kitty", "COLORTERM": "truecolor"}
SIXEL_ANSWER, PLAIN_ANSWER = b"\x1b[?62;4;22c", b"\x1b[?62;22c"
QUESTIONS = re.compile(rb"\x1b\[c|\x1b\[16t|\x1b\[\?1;1;0S|\x1b_Gi=(\d+),s=1,v=1,a=q([^;]*);AAAA\x1b\\")
KITTY_QUERY = re.compile(rb"\x1b_Gi=(\d+),s=1,v=1,a=q[^;]*;AAAA\x1b\\")
PLACEHOLDERS = b",U=1"
"""The key that kitty has since 0.28, as it has placeholders; older ones do not answer what has a key that they lack."""


class Answering:
    """The other end of a pseudo-terminal, which answers questions as a terminal does.

    Args:
        attributes: the answer to DA1; None for a terminal that answers nothing.
        kitty: it has kitty's graphics protocol, with placeholders.
        old_kitty: it has the protocol without them.
        registers: the number of colours that it can show in Sixel; None if it does not answer that.
    """

    threads: ClassVar[list[threading.Thread]] = []
    """Those that read; they end when the program's end is closed."""

    def __init__(
        self,
        terminal: int,
        attributes: bytes | None,
        *,
        kitty: bool = False,
        old_kitty: bool = False,
        registers: int | None = None,
    ) -> None:
        self.terminal, self.attributes, self.kitty, self.old_kitty = terminal, attributes, kitty, old_kitty
        self.registers = registers
        self.got = b""
        self._answered = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.threads.append(self._thread)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                self.got += os.read(self.terminal, 65536)
            except OSError:
                return
            for found in QUESTIONS.finditer(self.got, self._answered):
                self._answer(found)
                self._answered = found.end()

    def _answer(self, question: re.Match[bytes]) -> None:
        if question[1] is not None:
            if self.kitty or (self.old_kitty and PLACEHOLDERS not in question[2]):
                os.write(self.terminal, b"\x1b_Gi=%s;OK\x1b\\" % question[1])
        elif question[0].endswith(b"S"):
            if self.registers is not None:
                os.write(self.terminal, b"\x1b[?1;0;%dS" % self.registers)
        elif self.attributes is not None:
            os.write(self.terminal, b"\x1b[6;18;9t" if question[0].endswith(b"t") else self.attributes)

    def press(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def wait_for(self, what: bytes) -> re.Match[bytes]:
        deadline = time.monotonic() + 30
        while (found := re.search(what, self.got, re.DOTALL)) is None:
            assert time.monotonic() < deadline, (what, self.got)
            time.sleep(0.05)
        return found


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    terminal, program = pty.openpty()
    yield terminal, program
    os.close(program)
    for thread in Answering.threads:  # else one could read from the next terminal of this number
        thread.join(30)
    os.close(terminal)


@pytest.mark.parametrize(
    ("environment", "attributes", "kitty", "found"),
    [
        (XTERM, SIXEL_ANSWER, False, "sixel"),
        (XTERM, PLAIN_ANSWER, True, None),
        (XTERM, b"\x1b[?64;14;40c", False, None),
        (XTERM, b"x" + SIXEL_ANSWER, False, "sixel"),
        (KITTY, PLAIN_ANSWER, True, "kitty"),
        (KITTY, PLAIN_ANSWER, False, None),
        (XTERM, None, False, None),
    ],
)
def test_what_a_terminal_says_that_it_shows(
    ends: tuple[int, int], environment: dict[str, str], attributes: bytes | None, kitty: bool, found: str | None
) -> None:
    terminal, program = ends
    end = Answering(terminal, attributes, kitty=kitty)
    start = time.monotonic()
    import termios

    before = termios.tcgetattr(program)
    asked = ask(program, program, environment)
    assert (asked.protocol, asked.cell, asked.colours) == (found, (9, 18) if found else USUAL_CELL, 256)
    assert termios.tcgetattr(program) == before
    assert time.monotonic() - start < 30
    assert (KITTY_QUERY.search(end.got) is not None) == (environment is KITTY), "only kitty is asked for its protocol"
    assert not select.select([program], [], [], 0)[0], "no answer is left for the application"


def test_an_old_kitty_that_would_show_placeholders_as_text_gets_none(ends: tuple[int, int]) -> None:
    """That of Debian 12 is 0.26."""
    terminal, program = ends
    Answering(terminal, PLAIN_ANSWER, old_kitty=True)
    assert ask(program, program, KITTY).protocol is None


@pytest.mark.parametrize(("registers", "colours"), [(16, 16), (1024, 256), (10**30, 256), (1, 256), (0, 256)])
def test_how_many_colours_a_terminal_has(ends: tuple[int, int], registers: int, colours: int) -> None:
    terminal, program = ends
    Answering(terminal, SIXEL_ANSWER, registers=registers)
    asked = ask(program, program, XTERM)
    assert (asked.protocol, asked.colours, asked.cell) == ("sixel", colours, (9, 18))
    assert not select.select([program], [], [], 0)[0], "no answer is left for the application"


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, True),
        ({"TERM": "xterm-ghostty"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, False),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"}, False),
        ({}, False),
    ],
)
def test_where_kitty_is_asked_for(environment: dict[str, str], named: bool) -> None:
    assert names_kitty(environment) is named


@contextmanager
def viewing(
    run: Run,
    attributes: bytes | None,
    environment: dict[str, str],
    *,
    kitty: bool = False,
    registers: int | None = None,
) -> Iterator[Answering]:
    """`sweet view --id` without --print, on a terminal of 100 by 40 cells of 10 by 20 pixels."""
    import fcntl
    import struct
    import termios

    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 1000, 800))
    variables = {name: value for name, value in os.environ.items() if name not in ("KITTY_WINDOW_ID", "TMUX")}
    command = [sys.executable, "-m", "sweet", "view", str(run.path)]
    process = subprocess.Popen(
        command, stdin=program, stdout=program, stderr=program, env=variables | environment, start_new_session=True
    )
    os.close(program)
    end = Answering(terminal, attributes, kitty=kitty, registers=registers)
    try:
        end.wait_for(rb"quit")
        end.press(b"\r")
        end.wait_for(rb"agent 1")
        yield end
        end.press(b"qqq")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.usefixtures("pages")
def test_sixel_data_reaches_a_terminal_that_has_sixel(pages: Run) -> None:  # noqa: F811
    with viewing(pages, SIXEL_ANSWER, XTERM) as end:
        end.press(b"i")
        found = end.wait_for(rb"\x1bP([\d;]*)q(.*?)\x1b\\")
        defined = re.findall(rb"#(\d+);2;\d+;\d+;\d+(?:#(\d+))?", found[2])
        assert defined
        assert all(chosen == number for number, chosen in defined), "xterm defines a colour without choosing it"
        assert found[1] == b"0;1;0", "foot fills what is not drawn with the first colour"
        assert not found[2].endswith(b"-"), "foot begins another band, below the picture"
        end.wait_for(rb"Sixel")
        assert b"\x1b_G" not in end.got


@pytest.mark.usefixtures("pages")
def test_a_terminal_of_few_colours_gets_no_more(pages: Run, tmp_path: Path) -> None:  # noqa: F811
    """xterm as a VT340 has 16, and shows others in wrong colours."""
    image = Image.linear_gradient("L").convert("RGB").resize((1280, 720))
    ScreenshotStore(pages.path / SCREENSHOTS).put(
        page_key(REFERENCE, RenderSettings()), Screenshot(png(image), 1280, 720, ())
    )
    with viewing(pages, SIXEL_ANSWER, XTERM, registers=16) as end:
        end.press(b"i")
        end.wait_for(rb"reference page.*\x1bP[\d;]*q.*\x1b\\.*\x1bP[\d;]*q.*?\x1b\\")
        data = b"".join(re.findall(rb"\x1bP[\d;]*q(.*?)\x1b\\", end.got, re.DOTALL))
        used = {int(number) for number in re.findall(rb"#(\d+)", data)}
        assert 8 < len(used) <= 16
        assert max(used) < 16


@pytest.mark.usefixtures("pages")
def test_png_data_reaches_kitty(pages: Run) -> None:  # noqa: F811
    with viewing(pages, PLAIN_ANSWER, KITTY, kitty=True) as end:
        end.press(b"i")
        end.wait_for("\U0010eeee".encode())
        chunks = re.findall(rb"\x1b_Gi=(\d+),m=([01]),f=100,q=2;([\w+/=]*)\x1b\\", end.got)
        first = [data for name, _, data in chunks if name == chunks[0][0]]
        assert first, end.got[-3000:]
        with Image.open(io.BytesIO(base64.b64decode(b"".join(first)))) as image:
            assert image.width > 300
            assert image.convert("RGB").getpixel((5, 5)) in ((255, 0, 0), (0, 0, 255))
        assert b"\x1bP" not in re.sub(rb"\x1bP\+q[^\x1b]*\x1b\\", b"", end.got)


@pytest.mark.parametrize("attributes", [PLAIN_ANSWER, None])
def test_nothing_reaches_a_terminal_that_shows_no_pictures(pages: Run, attributes: bytes | None) -> None:  # noqa: F811
    with viewing(pages, attributes, XTERM | {"COLORTERM": "truecolor"}) as end:
        end.press(b"i")
        end.wait_for(b"half blocks: this terminal shows no pictures")
        end.wait_for("▀▀▀▀".encode())
        assert b"\x1b_G" not in end.got
        assert re.search(rb"\x1bP[\d;]*q", end.got) is None


def test_a_run_about_code_asks_nothing(run: Run) -> None:
    with viewing(run, SIXEL_ANSWER, KITTY) as end:
        assert b"\x1b[c" not in end.got
        assert b"\x1b_G" not in end.got


def _app(run: Run) -> ViewerApp:
    return ViewerApp(run, ViewConfig())


def test_the_screen_without_such_a_terminal(pages: Run) -> None:  # noqa: F811
    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "i")
        await pilot.pause()
        drawn = seen(pilot.app)
        assert "1 of 3" in drawn
        assert "half blocks: this terminal shows no pictures" in drawn
        assert "turn 1 · 1280 × 720" in drawn
        assert "the reference page · 1280 × 1440" in drawn
        assert drawn.count("▀▀▀▀▀▀▀▀") > 10
        await pilot.press("n")
        await pilot.pause()
        assert "not rendered" in seen(pilot.app)
        await pilot.press("n")
        await pilot.pause()
        drawn = seen(pilot.app)
        assert "did not load" in drawn
        assert "\x1b" not in drawn
        await pilot.press("n")
        assert "these are the last ones" in seen(pilot.app)
        await pilot.press("i")
        assert type(pilot.app.screen).__name__ == "DialogueScreen"

    played(_app(pages), script, (120, 40))


def test_two_dialogues_beside_the_reference(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="html")
    rows = [dump(dialogue(page(f"number {n}")).model_copy(update={"id": f"t{n}"})) for n in range(2)]
    made(run, "rollout", "rollouts", rows, [])
    store = ScreenshotStore(run.path / SCREENSHOTS)
    for text, colour in ((page("number 0"), RED), (page("number 1"), BLUE), (REFERENCE, RED)):
        store.put(page_key(text, RenderSettings()), shot(colour))

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "s", "i")
        await pilot.pause()
        drawn = seen(pilot.app)
        assert all(f"{title} · 1280 × 720" in drawn for title in ("A", "B", "the reference page"))
        await pilot.press("y")
        assert pilot.app.clipboard.count(f"{SCREENSHOTS}/") == 3

    played(_app(run), script, (120, 40))


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphics, "_is_terminal", lambda: True)
    monkeypatch.setattr(graphics, "ask", lambda *_: Graphics("sixel"))
    monkeypatch.setattr(sys, "stdin", sys.__stdin__)
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    hide_package("textual_image", monkeypatch)
    stdout = sys.__stdout__
    found = graphics.find_graphics()
    assert found.protocol is None
    assert "pip install '.[pictures]'" in found.words
    assert sys.__stdout__ is stdout
    assert "TEXTUAL_CELL_WIDTH" not in os.environ


def test_narrow_screens_have_the_pictures_below_each_other(pages: Run) -> None:  # noqa: F811
    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "i")
        await pilot.pause()
        lines = seen(pilot.app).splitlines()
        titles = [n for n, line in enumerate(lines) if "1280 ×" in line]
        assert len(titles) == 2
        assert titles[0] != titles[1]

    played(_app(pages), script, (30, 60))


def test_without_colours_files_are_named(pages: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "i")
        await pilot.pause()
        drawn = seen(pilot.app)
        assert "screenshots/" in drawn
        assert "▀" not in drawn

    played(_app(pages), script, (120, 40))


async def _no_key(pilot: Pilot[Any]) -> None:
    await pilot.press("enter", "i")
    assert type(pilot.app.screen).__name__ == "DialogueScreen"
    await pilot.press("question_mark")
    assert "beside the reference, large" not in seen(pilot.app)


def test_there_is_no_key_without_pictures(pages: Run) -> None:  # noqa: F811
    played(ViewerApp(pages, ViewConfig(pictures=False)), _no_key, (80, 60))


def test_there_is_no_key_for_code(run: Run) -> None:
    played(ViewerApp(run, ViewConfig()), _no_key, (80, 60))


def test_a_terminal_with_fewer_colours_gets_no_placeholders(pages: Run) -> None:  # noqa: F811
    """The colour of a placeholder is the number of its picture."""
    app = _app(pages)
    app.graphics = Graphics("kitty")
    app.console._color_system = None

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "i")
        await pilot.pause()
        assert "requires true colour" in seen(pilot.app)

    played(app, script, (120, 40))
