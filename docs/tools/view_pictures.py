"""Draw the pictures of docs/viewing.md and docs/html.md.

    sweet demo runs/first --train-tasks 60 --eval-tasks 64 && sweet rank runs/first --fraction 1 --candidates 6
    sweet rank runs/first --rollouts rollouts-1 --fraction 1 --candidates 6 --allow-test
    sweet rank runs/first --rollouts rollouts-3 --fraction 1 --candidates 6 --allow-test
    sweet rollout runs/pages --task html --agent scripted --num-tasks 6 && sweet eval runs/pages
    python -m docs.tools.view_pictures runs/first runs/pages docs

comparison.svg  two rollouts side by side: real screens of the application like docs/viewer.svg
                (`docs.tools.record_viewer`)
page.png        what the system's Firefox shows of the page that `sweet view --html` writes
served.png      what it shows of `sweet view --serve`
pictures.png    a page beside its reference, in the same way: half blocks

The runs are copied first.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from docs.tools.record_viewer import film
from tests.results.real_page import LOOPBACK, RealPage, real_page, served

SIZE = (110, 28)
"""Columns and lines of the terminal."""
WINDOW, LOW = (1280, 760), (1280, 456)
"""CSS px of the browser's window, and of the one that shows a page beside its reference."""
BEFORE, TRAINED, AFTER = "rollouts-1", "rollouts-2", "rollouts-3"
"""The rollouts of a demo: the untrained agent's, those that it learned from, the trained agent's."""
SCENES = (
    ((), "the same tasks before and after the training", 4.0),
    (("o",), "o: A fails, B solves", 4.0),
    (("enter", "d"), "d: the next difference", 5.0),
    (("n",), "n: the next two, with the critic's advantages", 5.0),
)
"""Keys, a caption, and seconds."""
DRAWN = "document.body.classList.contains('-first-byte')"
"""Whether the terminal in the page has been drawn on."""
SETTLED = 4.0
"""Seconds after a key until its screen is drawn: the page does not say it."""
ENTER = "\ue007"


async def screens(run: Path) -> list[str]:
    """Return the screen after each scene as SVG."""
    from sweet.runs.run import Run
    from sweet.view.app.viewer_app import ViewerApp
    from sweet.view.viewer import ViewConfig

    app = ViewerApp(Run.open(run), ViewConfig(from_=BEFORE, against=AFTER))
    frames = []
    async with app.run_test(size=SIZE) as pilot:
        for keys, caption, _ in SCENES:
            for key in keys:
                await pilot.press(key)
                await pilot.pause(0.3)
            await pilot.pause(0.5)
            frames.append(app.export_screenshot(title=f"sweet view --from {BEFORE} --against {AFTER}    {caption}"))
    return frames


def picture_of_page(firefox: RealPage, run: Path, page: Path) -> bytes:
    """Return the page to send with a dialogue opened that has candidates and passed, as PNG."""
    from sweet.results.dialogues_page import write_dialogues
    from sweet.runs.run import Run
    from sweet.view.records import Records
    from sweet.view.viewer import ViewConfig, Viewer

    write_dialogues(page, Viewer(Run.open(run), ViewConfig(from_=TRAINED)))
    records = Records(Run.open(run), TRAINED)
    shown = next(one for one in records.summaries() if one.outcome == "passed" and records.record(one).ranked)
    firefox.open(f"{page.as_uri()}#{shown.id}")
    firefox.until("document.querySelector('#dialogue details') !== null")
    return firefox.picture(*WINDOW)


def picture_of_application(
    firefox: RealPage, run: Path, options: Sequence[str], keys: Sequence[str], window: tuple[int, int]
) -> bytes:
    """Return what the application in the browser shows after some keys, as PNG."""
    firefox.resize(*window)
    with served(run, options) as address:
        firefox.open(address)
        firefox.until(DRAWN)
        firefox.value("document.querySelector('.xterm-helper-textarea').focus()")
        time.sleep(SETTLED)
        for key in keys:
            firefox.press(key)
            time.sleep(SETTLED)
        picture = firefox.picture(*window)
        firefox.open("about:blank")
    return picture


def main(run: Path, pages: Path, folder: Path) -> None:
    from PIL import Image

    with tempfile.TemporaryDirectory() as scratch:
        first, second = Path(scratch) / "runs" / "first", Path(scratch) / "runs" / "pages"
        shutil.copytree(run, first)
        shutil.copytree(pages, second)
        frames = asyncio.run(screens(first))
        (folder / "comparison.svg").write_text(film(frames, [scene[2] for scene in SCENES]), encoding="utf-8")
        with real_page({**LOOPBACK, "webgl.disabled": False}) as firefox:
            firefox.resize(*WINDOW)
            found = {
                "page": picture_of_page(firefox, first, Path(scratch) / "dialogues.html"),
                "served": picture_of_application(
                    firefox, first, ["--from", TRAINED, "--filter", "outcome=passed"], [ENTER], WINDOW
                ),
                "pictures": picture_of_application(firefox, second, [], [ENTER, "i"], LOW),
            }
    for name, picture in found.items():
        with Image.open(io.BytesIO(picture)) as image:
            image.convert("RGB").quantize(64).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
