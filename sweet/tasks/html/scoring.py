"""Score pages by the cosine between the embeddings of their screenshots and the reference's, with diagnostics.

The last page that the agent delivered counts. A missing page, and one that does not load, are scored as a black square
(the published protocol). A task whose reference does not render is invalid. Pages are rendered some batches ahead of
those that are compared; screenshots are stored in the run's `screenshots/`, so that scoring again needs no browser.

No cosine means that a task is solved, since two pages are never exactly the same. Therefore `passed` means that the
page loaded and was compared, and rewards are degrees (`HtmlKind.rewards`): preferences are between rewards that differ
by 0.1 (as in the paper), and rejection fine-tuning, for which no threshold is published, keeps the best dialogue of
each task.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from sweet.render.page import Renderer, RenderFailed, RenderSettings, Screenshot
from sweet.render.screenshot_images import black_square, read_image
from sweet.render.similarity import Embeddings, Similarity, cosine
from sweet.render.similarity_models import open_similarity
from sweet.render.store import SCREENSHOTS
from sweet.render.window import recorded_settings, window_name
from sweet.tasks.base import Task
from sweet.tasks.findings import Checked, Finding
from sweet.tasks.html.diagnostics import METRICS, diagnose
from sweet.tasks.scores import Score, ScoreOutcome, ScoringRequest, Verdict, scored
from sweet.tasks.trajectory import FAULTS, Trajectory

_TOGETHER = 32
"""Number of dialogues whose pages are compared in one batch."""
_AHEAD = 3
"""Number of batches that are rendered at once."""

Extract = Callable[[str], str | None]
"""Returns the page in a text, or None."""

_Shot = Screenshot | RenderFailed


@contextmanager
def open_html_scorer(request: ScoringRequest, extract: Extract) -> Iterator[HtmlEvaluation]:
    """Open the similarity, the browsers if the request has none, and a scorer that uses them.

    Raises:
        SweetError: there is no browser, or the similarity cannot be opened.
    """
    from sweet.render.browsers import open_browsers

    similarity = open_similarity(request.similarity, request.device, request.say)
    settings = recorded_settings(request.window, request.pictures)
    if request.renderer:
        opening: AbstractAsyncContextManager[Renderer] = nullcontext(request.renderer)
    else:
        opening = open_browsers(request.run / SCREENSHOTS, request.workers, settings)
    with asyncio.Runner() as runner, entered(runner, opening) as renderer:
        yield HtmlEvaluation(renderer, runner, extract, similarity, request)


async def _cancelled(tasks: Iterable[asyncio.Task[_Rendered]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def last_page(trajectory: Trajectory, extract: Extract) -> str | None:
    """Return the page to score. Imported rows may have it only in their last turns."""
    if trajectory.outcome in FAULTS:
        return None
    replies = [trajectory.dialogue_history[index].said for index in reversed(trajectory.agent_turns)]
    return next((page for text in (trajectory.answer, *replies) if (page := extract(text)) is not None), None)


def reference_page(trajectory: Trajectory, extract: Extract) -> str:
    """Return the reference page. In imported rows it may be surrounded by other text."""
    text = trajectory.task.ground_truth
    return extract(text) or text


@dataclass(frozen=True)
class _Rendered:
    """Trajectories with their rendered pages (None: no page) and references."""

    trajectories: Sequence[Trajectory]
    pages: Sequence[_Shot | None]
    references: Sequence[_Shot]


class HtmlEvaluation:
    """Implements sweet.tasks.scores.TrajectoryScorer.

    Args:
        request: whose options the other arguments have been opened with.
    """

    def __init__(
        self,
        renderer: Renderer,
        runner: asyncio.Runner,
        extract: Extract,
        similarity: Similarity,
        request: ScoringRequest,
    ) -> None:
        self._renderer, self._runner, self._extract = renderer, runner, extract
        self._embeddings = Embeddings(similarity)
        settings, upstream = recorded_settings(request.window, request.pictures), request.scorer == "upstream"
        default, window, pictures = RenderSettings(), window_name(settings), settings.pictures
        changed = [window] if window != window_name(default) else []
        changed += [pictures] if pictures != default.pictures else []
        self.name = "+".join([similarity.name, *changed, *(["upstream"] if upstream else [])])
        looks = f"--window {window} --pictures {pictures.partition('@')[0]}"
        self.option = f"{'--scorer upstream ' if upstream else ''}--similarity {similarity.choice} {looks}"
        self.meta: dict[str, Any] = {"similarity": similarity.name, "window": window, "pictures": pictures}
        self.environment: dict[str, Any] = {"scorer": self.name, **self.meta}
        self.metrics = METRICS

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score, in their order.

        Batches are rendered ahead of the one that is compared, so that neither a comparison nor a slow page leaves the
        other browsers idle.
        """
        rows = iter(trajectories)
        ahead: deque[asyncio.Task[_Rendered]] = deque()
        try:
            while True:
                while len(ahead) < _AHEAD and (batch := list(itertools.islice(rows, _TOGETHER))):
                    ahead.append(self._runner.get_loop().create_task(self._render(batch)))
                if not ahead:
                    break
                yield from self._runner.run(self._scored(ahead.popleft()))
        finally:
            self._runner.run(_cancelled(ahead))

    async def _scored(self, rendering: asyncio.Task[_Rendered]) -> list[tuple[Trajectory, Score]]:
        rendered = await rendering
        return list(zip(rendered.trajectories, await asyncio.to_thread(self._compare, rendered), strict=True))

    async def _render(self, batch: Sequence[Trajectory]) -> _Rendered:
        pages = [last_page(trajectory, self._extract) for trajectory in batch]
        references = [reference_page(trajectory, self._extract) for trajectory in batch]
        texts = list(dict.fromkeys(text for text in (*pages, *references) if text is not None))
        shots = dict(zip(texts, await asyncio.gather(*map(self._shoot, texts)), strict=True))
        return _Rendered(
            batch, [None if page is None else shots[page] for page in pages], [shots[text] for text in references]
        )

    async def _shoot(self, html: str) -> _Shot:
        try:
            return await self._renderer.shoot(html)
        except RenderFailed as failure:
            return failure

    def _compare(self, rendered: _Rendered) -> list[Score]:
        pictures = [shot.png if isinstance(shot, Screenshot) else black_square() for shot in rendered.pages]
        reference_pictures = [shot.png for shot in rendered.references if isinstance(shot, Screenshot)]
        vectors = self._embeddings.embed([*pictures, *reference_pictures])
        references = iter(vectors[len(pictures) :])
        scores = []
        for trajectory, page, reference, vector in zip(
            rendered.trajectories, rendered.pages, rendered.references, vectors[: len(pictures)], strict=True
        ):
            if isinstance(reference, RenderFailed):
                why = f"the reference does not render: {reference}"
                unscored = Verdict(None, 0, 0, "invalid", {"why": why, "reason": reference.reason})
                scores.append(scored(trajectory, unscored))
                continue
            likeness = round(cosine(vector, next(references)), 6)
            outcome, detail = _outcome(page)
            figures = diagnose(page if isinstance(page, Screenshot) else None, reference)
            if figures is not None:
                detail["diagnostics"] = figures.rounded()
            scores.append(scored(trajectory, Verdict(likeness, 0, 0, outcome, detail)))
        return scores


def _outcome(page: _Shot | None) -> tuple[ScoreOutcome, dict[str, Any]]:
    if page is None:
        return "no_answer", {"why": "no page was delivered"}
    if isinstance(page, RenderFailed):
        return "error", {"why": f"the page did not load: {page}", "reason": page.reason}
    return "passed", {}


def check_pages(tasks: Sequence[Task], request: ScoringRequest) -> Iterator[Checked]:
    """Yield each task, in their order, with what is wrong with its page.

    Raises:
        SweetError: there is no browser, or an asset that a page loads has not been downloaded.
    """
    from sweet.render.browsers import open_browsers

    opened = open_browsers(request.run / SCREENSHOTS, request.workers)
    with asyncio.Runner() as runner, entered(runner, opened) as renderer:
        for start in range(0, len(tasks), _TOGETHER):
            batch = tasks[start : start + _TOGETHER]
            yield from zip(batch, runner.run(_checked(batch, renderer)), strict=True)


async def _checked(tasks: Sequence[Task], renderer: Renderer) -> list[list[Finding]]:
    shots = await asyncio.gather(*(renderer.shoot(task.ground_truth) for task in tasks), return_exceptions=True)
    return [_findings_of(task, shot) for task, shot in zip(tasks, shots, strict=True)]


def _findings_of(task: Task, shot: Screenshot | BaseException) -> list[Finding]:
    if isinstance(shot, RenderFailed):
        what = f"the reference does not render: {str(shot).removesuffix('.')}"
        return [Finding(task.id, "invalid", what, "correct 'ground_truth'", unusable=True)]
    if isinstance(shot, BaseException):
        raise shot
    if len(read_image(shot.png).getcolors(1) or ()) == 1:
        what = "the page shows a single colour, as an empty page does"
        return [Finding(task.id, "trivial", what, "a page with something to see in 'ground_truth'")]
    return []


T = TypeVar("T")


@contextmanager
def entered(runner: asyncio.Runner, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter a context in the runner's loop, and leave it at the end."""
    stack = AsyncExitStack()
    try:
        yield runner.run(stack.enter_async_context(context))
    finally:
        runner.run(stack.aclose())
