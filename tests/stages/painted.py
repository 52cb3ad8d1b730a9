"""A kind of task by plug-in: pages that a small painter stands in a browser's place for, scored as pages are.

It shows that a kind scores and learns without anything of sweet knowing it, and lets the stages after a rollout be
tested on pages where there is no browser.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import EntryPoint, entry_points

import pytest
from PIL import Image, ImageDraw

from sweet.render.page import Block, RenderFailed, Screenshot
from sweet.render.similarity_models import open_similarity
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.html.diagnostics import METRICS
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.html.scoring import HtmlEvaluation
from sweet.tasks.scores import ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Outcome, Trajectory, Turn
from tests.render.pictures import png

_BOX = re.compile(r"<p style='color:(#[0-9a-f]{6})'>([^<]*)</p>")
_PAGE = re.compile(r"<html.*?</html>", re.DOTALL)


class Painter:
    """Draws each paragraph of a page as a bar of its colour, as long as its text; counts what it draws."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    async def shoot(self, html: str) -> Screenshot:
        self.drawn.append(html)
        await asyncio.sleep(0)
        if "<hang>" in html:
            raise RenderFailed("timeout", "it did not load within 15 seconds")
        image = Image.new("RGB", (400, 300), "white")
        draw = ImageDraw.Draw(image)
        blocks = []
        for number, (colour, text) in enumerate(_BOX.findall(html)):
            y, width = 10 + 30 * number, min(8 * len(text), 380)
            draw.rectangle((10, y, 10 + width, y + 20), fill=colour)
            blocks.append(Block("p", text, 10, y, width, 20, colour, "", 16, bold=False, image=False))
        return Screenshot(png(image), 400, 300, tuple(blocks))


def extract(text: str) -> str | None:
    found = _PAGE.search(text)
    return found[0] if found else None


class PaintedKind(CodeKind):
    """A kind as another package would bring it."""

    name = "painted"
    rewards = HtmlKind.rewards
    scorer_options = HtmlKind.scorer_options
    metrics = METRICS
    painter = Painter()

    def agent_system(self) -> str:
        return "You build pages."

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        return _open(request, self.painter)


@contextmanager
def _open(request: ScoringRequest, painter: Painter) -> Iterator[TrajectoryScorer]:
    similarity = open_similarity(request.similarity, request.device, request.say)
    with asyncio.Runner() as runner:
        yield HtmlEvaluation(painter, runner, extract, similarity, request)


def plug_in(monkeypatch: pytest.MonkeyPatch) -> Painter:
    """Make the kind `painted` an installed one; its painter."""
    PaintedKind.painter = Painter()
    painted = EntryPoint(name="painted", value=f"{__name__}:PaintedKind", group="sweet.tasks")

    def points(*, group: str) -> list[EntryPoint]:
        return [*entry_points(group=group), *([painted] if group == painted.group else [])]

    monkeypatch.setattr("sweet.plugins.entry_points", points)
    return PaintedKind.painter


def page(*lines: str, colour: str = "#224488") -> str:
    return "<html>" + "".join(f"<p style='color:{colour}'>{line}</p>" for line in lines) + "</html>"


def trajectory(
    name: str,
    *pages: str,
    reference: str,
    task: str = "t1",
    sample: int = 0,
    outcome: Outcome = "answered",
    answer: str | None = None,
) -> Trajectory:
    """A dialogue in which the agent delivers these pages; the answer is the last one unless it is given."""
    turns = [Turn(role="user", content="A page for a bakery.")]
    for number, text in enumerate(pages):
        said = f"How about this?\n{text}"
        turns.append(Turn(role="assistant", content=said, output=said))
        if number < len(pages) - 1:
            turns.append(Turn(role="user", content="There is a line missing."))
    return Trajectory(
        id=name,
        task=Task(id=task, problem_description="A page for a bakery.", ground_truth=reference),
        dialogue_history=tuple(turns),
        answer=answer if answer is not None else pages[-1] if pages and outcome == "answered" else NO_ANSWER,
        sample=sample,
        outcome=outcome,
    )
