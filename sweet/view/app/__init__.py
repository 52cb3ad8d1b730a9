"""The viewer on a terminal, as a Textual application. Nothing outside this package knows Textual."""

from __future__ import annotations

import gc

from sweet.runs.run import Run
from sweet.view.viewer import ViewConfig


def browse(run: Run, config: ViewConfig) -> None:
    """Browse a run until the person has seen enough.

    Raises:
        UsageError: there is nothing to browse, or it cannot be read.
        KeyboardInterrupt: the process was told to end, which it is by no key.
    """
    gc.disable()  # opening makes nothing but what stays; once the application is ready, it goes on
    try:
        from sweet.view.app.viewer_app import ViewerApp

        app = ViewerApp(run, config)
        app.run()
    finally:
        gc.enable()
    gc.freeze()  # the process ends now: half of the time it takes would go into looking for garbage
    if app.failure is not None:
        raise app.failure
