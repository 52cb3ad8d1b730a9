"""Draw the pictures of docs/viewing.md: two rollouts side by side (comparison.svg), and the page to send (page.png).

    sweet demo runs/first --train-tasks 60 --eval-tasks 64 && sweet rank runs/first --fraction 1 --candidates 6
    python -m docs.tools.view_pictures runs/first docs

The first is made of real screens of the application like docs/viewer.svg (`docs.tools.record_viewer`), the second is
what the system's Firefox shows of the page that `sweet view --html` writes. RUN is copied first.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import tempfile
from pathlib import Path

from docs.tools.record_viewer import film

SIZE = (110, 28)
"""Columns and lines of the terminal."""
WINDOW = (1280, 760)
"""CSS px of the browser's window."""
BEFORE, TRAINED, AFTER = "rollouts-1", "rollouts-2", "rollouts-3"
"""The rollouts of a demo: the untrained agent's, those that it learned from, the trained agent's."""
SCENES = (
    ((), "the same tasks before and after the training", 4.0),
    (("o",), "o: A fails, B solves", 4.0),
    (("enter", "d"), "d: the next difference", 5.0),
    (("d",), "d: the next difference", 5.0),
)
"""Keys, a caption, and seconds."""


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


READ = """new Promise((done) => {
  const look = () => document.querySelector("#dialogue details") ? done("") : setTimeout(look, 50);
  look();
})"""
"""Waits until a dialogue is opened."""


async def page_picture(address: str) -> bytes:
    """Return a PNG of the page; the address has the name of a dialogue."""
    from sweet.render.bidi import DirectWindow
    from sweet.render.driver import Scripts
    from sweet.render.firefox import find_firefox

    window = DirectWindow(find_firefox().path)
    try:
        await window.start(1, Scripts("", f"() => {READ}"), *WINDOW)
        await window.go(address)
        await window.measure()
        return await window.picture(*WINDOW, document=False)
    finally:
        if window.processes is not None:
            window.processes.kill()
        await window.close()


def main(run: Path, folder: Path) -> None:
    from PIL import Image

    from sweet.runs.run import Run
    from sweet.view.records import Records
    from sweet.view.viewer import ViewConfig, Viewer

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "runs" / "first"
        shutil.copytree(run, copy)
        frames = asyncio.run(screens(copy))
        (folder / "comparison.svg").write_text(film(frames, [scene[2] for scene in SCENES]), encoding="utf-8")
        page = Path(scratch) / "dialogues.html"
        Viewer(Run.open(copy), ViewConfig(from_=TRAINED)).write_html(page)
        records = Records(Run.open(copy), TRAINED)
        ranked = records.ranked_ids()
        shown = next(one for one in records.summaries() if one.id in ranked and one.outcome == "passed")
        picture = asyncio.run(page_picture(f"{page.as_uri()}#{shown.id}"))
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(64).save(folder / "page.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
