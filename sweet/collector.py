"""Keeps the garbage collector away from the objects of imported modules, which live as long as the process.

torch and transformers make about a million of them. The collector would look through them again and again during the
import, and once more when the interpreter exits: about half of the time of a process that imports torch and does little
else.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused(*, freeze: bool = False) -> Iterator[None]:
    """Collect nothing inside the context, which imports modules. Reference counts free objects as always.

    Args:
        freeze: later collections do not look through the objects that exist at the end of the context either. For the
            first imports of a program, before there is any garbage.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if freeze:
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def before_exit() -> None:
    """Let the interpreter exit without a last collection. Called when nothing but its shutdown remains."""
    gc.freeze()
