"""The viewer as a Textual application on a terminal. Only this package imports Textual."""

from __future__ import annotations

import contextlib
import gc

from sweet import collector
from sweet.runs.run import Run
from sweet.view.viewer import ViewConfig


def browse(run: Run, config: ViewConfig, *, served: bool = False) -> None:
    """Browse a run until the user quits.

    Args:
        served: it is drawn in a browser.

    Raises:
        UsageError: there is nothing to browse, or it cannot be read.
        KeyboardInterrupt: the process received SIGINT from outside; no key causes it.
    """
    gc.disable()  # opening creates only long-lived objects; `on_ready` enables it again
    try:
        from sweet.view.app.viewer_app import ViewerApp

        app = ViewerApp(run, config, served=served)
        if app.viewer.a.options.screenshots is not None and config.screenshots and not served:
            with contextlib.suppress(ImportError):
                import textual_image.widget  # noqa: F401, it asks the terminal for its protocol, before Textual does
        app.run()
    finally:
        gc.enable()
    collector.before_exit()
    if app.failure is not None:
        raise app.failure
