"""A page in the system's Firefox, driven as a user does: by clicks, keys and what can be seen."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sweet.render import bidi
from sweet.render.bidi import DirectWindow
from sweet.render.driver import Scripts
from sweet.render.firefox import find_firefox, preferences
from tests import programs

T = TypeVar("T")
SECONDS = 60.0
"""Most seconds until something is seen, on a machine with other work."""


LOOPBACK = {
    "network.proxy.no_proxies_on": "127.0.0.1",
    "network.proxy.allow_hijacking_localhost": False,
    "privacy.reduceTimerPrecision": False,
}
"""Preferences of a browser that reaches servers of this machine, and has clocks."""


class RealPage:
    """One Firefox with one window. It reaches no network: its proxy is a port that refuses connections.

    Args:
        more: preferences other than those with which pages are rendered.
    """

    def __init__(self, more: Mapping[str, Any] | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._window = DirectWindow(find_firefox().path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bidi, "preferences", lambda port: {**preferences(port), **(more or {})})
            self._run(self._window.start(1, Scripts("", "() => ''"), 1400, 900))

    @property
    def memory(self) -> int:
        """MB of all processes of the browser."""
        assert self._window.processes is not None
        return self._window.processes.memory()

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(what, 90))

    def _do(self, method: str, **params: Any) -> Any:
        return self._run(self._window._do(method, **params))

    def open(self, address: str | Path, *, wait: str = "complete") -> None:
        url = address.absolute().as_uri() if isinstance(address, Path) else address
        self._do("browsingContext.navigate", context=self._window._context, url=url, wait=wait)

    def resize(self, width: int, height: int) -> None:
        viewport = {"width": width, "height": height}
        self._do("browsingContext.setViewport", context=self._window._context, viewport=viewport)

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page: a text, a number, a truth value or None. A promise is waited
        for."""
        answer = self._do(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})))()",
            target={"context": self._window._context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))

    def text(self, selector: str) -> str:
        """Return what is seen of the first element."""
        return str(self.value(f"(document.querySelector({selector!r}) ?? {{}}).innerText ?? ''"))

    def texts(self, selector: str) -> list[str]:
        return list(self.value(f"[...document.querySelectorAll({selector!r})].map((one) => one.innerText)"))

    def until(self, expression: str) -> None:
        """Wait until an expression of the page is true."""
        limit = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < limit, (expression, self.text("body")[:2000])
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click on the middle of the first element that matches, which must be there and seen."""
        place = self.value(
            f"(() => {{ const one = document.querySelector({selector!r}); one.scrollIntoView({{block: 'nearest'}}); "
            "const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2, "
            f"one.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2))]; }})()"
        )
        assert place[2], f"{selector} is covered"
        moves = [
            {"type": "pointerMove", "x": round(place[0]), "y": round(place[1])},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self.act({"type": "pointer", "id": "mouse", "actions": moves})

    def press(self, *keys: str) -> None:
        """Press keys one after another. Special keys are the code points of WebDriver."""
        actions = [{"type": way, "value": key} for key in keys for way in ("keyDown", "keyUp")]
        self.act({"type": "key", "id": "keyboard", "actions": actions})

    def write(self, selector: str, text: str) -> None:
        """Replace the text of a field by typing."""
        self.click(selector)
        self.value(f"document.querySelector({selector!r}).select()")
        self.press("\ue017", *text)  # delete

    def act(self, *sources: dict[str, Any]) -> None:
        """Perform the actions of several sources at once, such as the mouse while a key is down."""
        self._do("input.performActions", context=self._window._context, actions=list(sources))

    def picture(self, width: int = 1400, height: int = 900) -> bytes:
        """Return the upper left part of the window, as PNG."""
        return self._run(self._window.picture(width, height, document=False))

    def close(self) -> None:
        if self._window.processes is not None:
            self._window.processes.kill()
        if self._window._process is not None:
            self._window._process.wait(60)
        self._run(self._window.close())
        self._loop.close()


@contextmanager
def real_page(more: Mapping[str, Any] | None = None) -> Iterator[RealPage]:
    page = RealPage(more)
    try:
        yield page
    finally:
        page.close()


@contextmanager
def served(run: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """`sweet view --serve`, and the address that it prints."""
    words = [*programs.SWEET, "view", str(run), "--serve", *options]
    with programs.start(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
