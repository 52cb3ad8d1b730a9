"""The viewer on a terminal, as a Textual application. Nothing outside this package knows Textual."""

from __future__ import annotations

import gc

from sweet.runs.run import Run
from sweet.view.app.app import ViewerApp
from sweet.view.viewer import ViewConfig


def browse(run: Run, config: ViewConfig) -> None:
    """Browse a run until the person has seen enough.

    Raises:
        UsageError: there is nothing to browse, or it cannot be read.
    """
    app = ViewerApp(run, config)
    app.run()
    gc.freeze()  # the process ends now: half of the time it takes would go into looking for garbage
    if app.failure is not None:
        raise app.failure
