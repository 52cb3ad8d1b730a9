"""Whether the terminal shows pictures, and by which protocol: kitty's graphics protocol or Sixel (extra `pictures`).

It is asked before the application starts, which then reads all input itself, and only for a run about pages. Every
terminal answers the question for its attributes (DA1), in which 4 stands for Sixel: xterm, iTerm2, WezTerm, foot, tmux.
Kitty's protocol is asked for where variables name kitty or Ghostty, which alone have the form that scrolls with text
(Unicode placeholders), and not inside tmux, which has these variables of the terminal around it. Kitty has placeholders
since 0.28; an older one shows them as text, and does not answer a question with their key. A terminal with Sixel is
also asked how many colours it has: xterm as a VT340 has 16. Nothing is asked of a pipe, a browser or a terminal
without a cursor.

textual-image, which draws the pictures, asks too when it is imported, but gives up after a tenth of a second: over a
slow connection the application would get the answers as keys. It is therefore imported without a terminal.
"""

from __future__ import annotations

import io
import os
import re
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sweet.installation import install_command

if TYPE_CHECKING:
    from PIL import Image
    from textual.widget import Widget

Protocol = Literal["kitty", "sixel"]

ANSWER_WITHIN = 2.0
"""Seconds after which a terminal is taken for one that answers nothing."""
LONGEST = 4096
"""Bytes of an answer that are read."""
USUAL_CELL = (10, 20)
"""Width and height of a cell in pixels, where the terminal does not say."""
COLOURS = 256
"""Colours of a Sixel picture at most, and where the terminal does not say how many it has."""

_ATTRIBUTES = b"\x1b[c"
_CELL = b"\x1b[16t"
_KITTY = b"\x1b_Gi=31,s=1,v=1,a=q,U=1,t=d,f=24;AAAA\x1b\\"
"""A picture of one pixel, which is not shown; named 31. `U` is the key of placeholders."""
_KITTY_CAN = b"\x1b_Gi=31;OK\x1b\\"
_SIXEL = b"4"
_REGISTERS = b"\x1b[?1;1;0S"
"""The question for the number of colour registers (XTSMGRAPHICS)."""
SIXEL_COLOUR = re.compile(r"#(\d+);2;\d+;\d+;\d+")
"""The definition of a colour in Sixel data: its number, and red, green and blue in percent."""


@dataclass(frozen=True)
class Graphics:
    """How pictures are drawn.

    Attributes:
        protocol: None for half blocks, which every terminal with colours has.
        why: why it is half blocks, in words.
        cell: width and height of a cell in pixels.
        colours: of a Sixel picture at most.
    """

    protocol: Protocol | None = None
    why: str = "this terminal shows no pictures"
    cell: tuple[int, int] = USUAL_CELL
    colours: int = COLOURS

    @property
    def words(self) -> str:
        if self.protocol is None:
            return f"half blocks: {self.why}"
        return "Sixel" if self.protocol == "sixel" else "kitty's graphics protocol"

    def rows(self, width: int, height: int, columns: int) -> float:
        """Return how many rows of the terminal a picture of this size in pixels has that is `columns` cells wide."""
        across, down = self.cell
        return height * columns * across / (width * down)

    def widget(self, image: Image.Image, columns: int) -> Widget:
        """Return a widget of textual-image that draws a picture by the protocol, `columns` cells wide."""
        from textual_image.widget import TGPImage

        drawn: Widget = _sixel_widget(image, self.colours) if self.protocol == "sixel" else TGPImage(image)
        # A size of `auto` would be computed from a width that is not known yet.
        drawn.styles.width, drawn.styles.height = columns, max(1, round(self.rows(*image.size, columns)))
        return drawn


def _sixel_widget(image: Image.Image, colours: int) -> Widget:
    """Return a widget of textual-image that draws a picture as Sixel, with data that xterm and foot understand too."""
    from textual_image.widget import SixelImage, SixelOptions

    widget: Any = SixelImage(image, sixel_options=SixelOptions(colors=colours))
    parts = widget.compose

    def compose() -> Iterator[Widget]:
        for part in parts():
            part._image_to_sixels = _understood(part._image_to_sixels)
            yield part

    widget.compose = compose
    found: Widget = widget
    return found


def _understood(encode: Callable[..., str]) -> Callable[..., str]:
    """Return a function that encodes as textual-image does, with three corrections.

    xterm does not take a colour to be chosen by its definition. foot begins a band at the last "-", and fills it, below
    the picture, with the first colour; and with P2 = 0 it fills whatever a band does not draw.
    """

    def corrected(*args: Any, **options: Any) -> str:
        data = SIXEL_COLOUR.sub(r"\g<0>#\1", encode(*args, **options)).replace("\x1bP0;0;0q", "\x1bP0;1;0q", 1)
        return data.removesuffix("\x1b\\").removesuffix("-") + "\x1b\\"

    return corrected


def find_graphics() -> Graphics:
    """Return how pictures are drawn on the terminal of this process; to be called before the application starts."""
    if not _is_terminal():
        return Graphics()
    found = ask(sys.stdin.fileno(), sys.stdout.fileno(), os.environ)
    if found.protocol is None:
        return found
    try:
        _import_without_terminal(found.cell)
    except ImportError:
        return Graphics(why=f"pictures require {install_command('pictures')}")
    return found


def _is_terminal() -> bool:
    both = sys.stdin.isatty() and sys.stdout.isatty()
    return both and os.name == "posix" and os.environ.get("TERM", "dumb") != "dumb"


def _import_without_terminal(cell: tuple[int, int]) -> None:
    """Import textual-image with this size of cells, which it reads from variables where it finds no terminal."""
    stdout = sys.__stdout__
    given = dict(zip(("TEXTUAL_CELL_WIDTH", "TEXTUAL_CELL_HEIGHT"), map(str, cell), strict=True))
    before = {name: os.environ.get(name) for name in given}
    vars(sys)["__stdout__"] = io.StringIO()
    os.environ.update(given)
    try:
        import textual_image.widget  # noqa: F401
    finally:
        vars(sys)["__stdout__"] = stdout
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def ask(keyboard: int, screen: int, environment: Mapping[str, str]) -> Graphics:
    """Ask the terminal with these descriptors what it can show, how many colours, and the size of a cell in pixels."""
    import termios
    import tty

    may_be_kitty = names_kitty(environment)
    questions = (_KITTY if may_be_kitty else b"") + _ATTRIBUTES
    cell, colours = _cell_of_kernel(screen), COLOURS
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard, termios.TCSANOW)  # else the terminal would show the answer
        answer = _answer(keyboard, screen, questions)
        protocol: Protocol | None = None
        if may_be_kitty and _KITTY_CAN in answer:
            protocol = "kitty"
        elif _SIXEL in (_between(answer, b"\x1b[?", b"c") or b"").split(b";"):
            protocol = "sixel"
        more = (_CELL if protocol and cell is None else b"") + (_REGISTERS if protocol == "sixel" else b"")
        if more:
            # The attributes are asked for again as the last answer, after which there is none.
            answer = _answer(keyboard, screen, more + _ATTRIBUTES)
            cell = cell or _cell((_between(answer, b"\x1b[6;", b"t") or b"").split(b";"))
            colours = _colours(_between(answer, b"\x1b[?1;0;", b"S") or b"")
    except OSError:
        return Graphics()
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)
    return Graphics() if protocol is None else Graphics(protocol, cell=cell or USUAL_CELL, colours=colours)


def _cell_of_kernel(screen: int) -> tuple[int, int] | None:
    """Return the width and height of a cell if the kernel knows the size of the window in pixels."""
    import fcntl
    import termios

    try:
        size = fcntl.ioctl(screen, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return None
    rows, columns, width, height = struct.unpack("HHHH", size)
    return (width // columns, height // rows) if width >= columns > 0 and height >= rows > 0 else None


def _cell(numbers: list[bytes]) -> tuple[int, int] | None:
    """Return width and height from an answer, which has the height first."""
    if len(numbers) != 2 or not all(number.isdigit() and 0 < len(number) < 4 for number in numbers):
        return None
    height, width = map(int, numbers)
    return (width, height) if width and height else None


def _colours(number: bytes) -> int:
    """Return the colours of a picture from the number of registers that a terminal says it has."""
    known = int(number) if number.isdigit() and len(number) < 8 else 0
    return min(known, COLOURS) if known > 1 else COLOURS


def names_kitty(environment: Mapping[str, str]) -> bool:
    """Return whether variables name a terminal with kitty's protocol and its placeholders."""
    term = environment.get("TERM", "")
    if "TMUX" in environment or term.startswith(("tmux", "screen")):
        return False
    named = term in ("xterm-kitty", "xterm-ghostty") or environment.get("TERM_PROGRAM") == "ghostty"
    return named or "KITTY_WINDOW_ID" in environment


def _between(answer: bytes, start: bytes, end: bytes) -> bytes | None:
    """Return what an answer has between its start and its end; None if it is not complete."""
    _, found, rest = answer.partition(start)
    numbers, ended, _ = rest.partition(end)
    return numbers if found and ended else None


def _answer(keyboard: int, screen: int, questions: bytes) -> bytes:
    """Send questions, of which the last is for the attributes, and read until these are complete."""
    os.write(screen, questions)
    read, deadline = b"", time.monotonic() + ANSWER_WITHIN
    while _between(read, b"\x1b[?", b"c") is None and len(read) < LONGEST:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([keyboard], [], [], left)[0]:
            break
        some = os.read(keyboard, LONGEST)
        if not some:
            break
        read += some
    return read
