"""Record docs/viewer.svg, the animation of the README: real screens of `sweet view` in sequence.

    sweet demo runs/first --train-tasks 60 --eval-tasks 64 && sweet rank runs/first --fraction 1 --candidates 6
    python -m docs.tools.record_viewer runs/first docs/viewer.svg rollouts-2

The viewer runs without a terminal, is driven by keys (`SCENES`), and exports each screen as an SVG. These are merged
into one: elements that several screens share are stored once, in a group for their set of screens, and CSS makes the
group visible during these screens. The file has no script, external font or URL; without animation the first screen is
shown. RUN is copied first, so that it
stays as it is.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

NAMESPACE = "{http://www.w3.org/2000/svg}"
FONT = 'ui-monospace, "Cascadia Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'
SIZE = (104, 30)
"""Columns and lines of the terminal."""


@dataclass(frozen=True)
class Scene:
    """Keys to press, a caption, and the seconds that the screen is shown for."""

    keys: Sequence[str]
    caption: str
    seconds: float = 3.0


TASK = "micro-train-0022"
"""A task of the run that some of its dialogues solve."""

SCENES = (
    Scene((), "every dialogue of a rollout", 3.5),
    Scene(("slash", *f"task={TASK}"), "/: search, and filter by outcome, task, reward, fault", 3.0),
    Scene(("enter", "f"), "f: the next failure", 3.0),
    Scene(("enter",), "enter: turn by turn, each with its advantage", 5.0),
    Scene(("c",), "c: the candidates that the critic ranked", 5.0),
    Scene(("c", "end"), "the hidden tests of what was delivered", 5.0),
    Scene(("h", "end"), "h: what the human had in mind", 4.0),
    Scene(("s",), "s: beside another dialogue of the task", 5.0),
    Scene(("question_mark",), "?: all keys", 3.5),
)


async def screens(run: Path, rollouts: str | None, scenes: Iterable[Scene]) -> list[str]:
    """Return the screen after each scene as SVG."""
    from sweet.runs.run import Run
    from sweet.view.app.viewer_app import ViewerApp
    from sweet.view.viewer import ViewConfig

    app = ViewerApp(Run.open(run), ViewConfig(from_=rollouts))
    frames = []
    async with app.run_test(size=SIZE) as pilot:
        for scene in scenes:
            for key in scene.keys:
                await pilot.press(key)
                await pilot.pause(0.3)
            await pilot.pause(0.5)
            frames.append(app.export_screenshot(title=f"sweet view {run.parent.name}/{run.name}    {scene.caption}"))
    return frames


def film(frames: Sequence[str], seconds: Sequence[float]) -> str:
    """Return one SVG that shows the frames in an endless loop, each for its seconds."""
    styles: dict[str, str] = {}
    frame_of: dict[str, list[int]] = {}
    for number, frame in enumerate(frames):
        for element in _elements(frame, styles):
            frame_of.setdefault(element, [])
            if frame_of[element][-1:] != [number]:
                frame_of[element].append(number)
    groups: dict[tuple[bool, tuple[int, ...]], list[str]] = {}
    for element, numbers in frame_of.items():
        groups.setdefault((element.startswith("<text"), tuple(numbers)), []).append(element)
    view = ElementTree.fromstring(frames[0]).attrib["viewBox"]
    rules = [f"text{{font:20px {FONT};white-space:pre}}", *(f".{name}{{{style}}}" for style, name in styles.items())]
    body = []
    # Text is drawn above backgrounds, and the window, which all screens share, below everything.
    order = sorted(groups.items(), key=lambda group: (group[0][0], -len(group[0][1])))
    for number, ((_, shown), elements) in enumerate(order):
        if len(shown) < len(frames):
            rules += _visible(f"v{number}", shown, seconds)
        body.append(f'<g class="v{number}">{"".join(elements)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}">\n<style>\n'
        + "\n".join(rules)
        + "\n</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _visible(name: str, shown: Sequence[int], seconds: Sequence[float]) -> list[str]:
    """Return the rules of a group that is visible in these frames. Without animation the first frame is visible."""
    whole, stops = sum(seconds), []
    for number in range(len(seconds)):
        at = 100 * sum(seconds[:number]) / whole
        stops.append(f"{at:.2f}%{{visibility:{'visible' if number in shown else 'hidden'}}}")
    first = "visible" if 0 in shown else "hidden"
    return [
        f"@keyframes {name}{{{''.join(stops)}}}",
        f".{name}{{visibility:{first};animation:{name} {whole:g}s step-end infinite}}",
    ]


def _elements(frame: str, styles: dict[str, str]) -> Iterable[str]:
    """Yield the drawn parts of a screen, each as one independent element."""
    root = ElementTree.fromstring(frame)
    rules = "".join(style.text or "" for style in root.iter(f"{NAMESPACE}style"))
    classes = {name: " ".join(style.split()) for name, style in re.findall(r"\.([\w-]+)\s*\{([^}]*)\}", rules)}
    yield from _drawn(root, "", classes, styles)


def _drawn(
    parent: ElementTree.Element, transform: str, classes: dict[str, str], styles: dict[str, str]
) -> Iterable[str]:
    for child in parent:
        tag = child.tag.removeprefix(NAMESPACE)
        if tag == "g":
            yield from _drawn(child, transform + child.get("transform", ""), classes, styles)
        elif tag in ("rect", "circle", "text"):
            attributes = {name: value for name, value in child.items() if name not in ("class", "clip-path")}
            if transform:
                attributes["transform"] = transform
            style = ";".join(filter(None, (classes.get(name, "") for name in child.get("class", "").split())))
            style = re.sub(r"font-(family|size): [^;]*;?|\s(?=\s)", "", style).strip()
            if style:
                attributes["class"] = styles.setdefault(style, f"s{len(styles)}")
            listed = "".join(f' {name}="{escape(value, {chr(34): "&quot;"})}"' for name, value in attributes.items())
            text = escape(child.text or "")
            yield f"<{tag}{listed}>{text}</{tag}>" if text else f"<{tag}{listed}/>"


def main(run: Path, file: Path, rollouts: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "runs" / "first"
        shutil.copytree(run, copy)
        frames = asyncio.run(screens(copy, rollouts, SCENES))
    file.write_text(film(frames, [scene.seconds for scene in SCENES]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
