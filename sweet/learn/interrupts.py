"""When trainings write checkpoints besides those of their steps: by time, and when a signal stops them.

The step that is under way when a signal arrives is finished first; a second signal has its usual effect at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from sweet.errors import Interrupted

SAVE_SECONDS = 600.0
"""Seconds of training after which a checkpoint is written."""
SAVE_SHARE = 0.05
"""The largest share of the time that is spent on checkpoints which only the time asks for."""
STOPPING = "Stopping: the step that is under way is finished, and a checkpoint is written. Ctrl-C again stops at once."
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Holds signals back, from `hold` to the end of the context, in which everything else is as usual.

    Only signals that have a handler of Python are held back: others end the process or are ignored. Python delivers
    signals to the main thread; in another one nothing is held back.

    Args:
        say: called when a signal arrives, from a thread of its own: a handler may run amid another call of it.

    Attributes:
        asked: whether one arrived; the limit of the cost sets it too.
    """

    def __init__(self, say: Callable[[str], None] = lambda _text: None) -> None:
        self._say, self.asked = say, False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def hold(self) -> None:
        """Hold signals back from now on."""
        if threading.current_thread() is threading.main_thread() and not self._handlers:
            handlers = {number: signal.getsignal(number) for number in _SIGNALS}
            self._handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
            for number in self._handlers:
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._release()
        threading.Thread(target=self._say, args=(STOPPING,)).start()

    def _release(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


def stopped(step: int) -> Interrupted:
    """Return the error of a training that was stopped after a step, which its checkpoint has."""
    return Interrupted(f"Stopped after step {step:,}, which the checkpoint has.")
