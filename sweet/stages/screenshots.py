"""The screenshots that a critic of pages is shown.

The rollout keeps every page that the human saw in the run's `screenshots/`, including lasting failures. The pages of
candidates of `sweet rank` are new: those of a batch of turns are rendered together when they are judged, and kept too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.errors import SweetError, UsageError
from sweet.gathering import run_all, run_main
from sweet.render.page import RenderFailed, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.registry import task_kind
from sweet.units import count

if TYPE_CHECKING:
    from sweet.learn.page_encoder import PageEncoder
    from sweet.learn.vision_processor import VisionProcessor


def shows_pages(run: Run, model: str) -> bool:
    """Return whether the tasks of the run are pages and the model accepts images."""
    from sweet.llm.pretrained import is_vision_model

    return task_kind(run.manifest().task).visual and is_vision_model(model)


def page_encoder(
    run: Run, rollouts: Artifact, tokenizer: Any, vision: VisionProcessor, screenshots: CriticScreenshots
) -> PageEncoder:
    """Return an encoder of the dialogues of these rollouts, and of others of their kind, with their screenshots."""
    from sweet.learn.page_encoder import PageEncoder

    kind, protocol = task_kind(run.manifest().task), RolloutsMeta.of(rollouts).protocol or "paper"
    return PageEncoder(
        tokenizer, vision, screenshots, lambda text: kind.move(text, last=False, protocol=protocol).answer
    )


class CriticScreenshots:
    """The screenshots of a run's pages (implements sweet.learn.page_encoder.Screenshots).

    Args:
        rollouts: the dialogues, which record how their pages were rendered.
        renders: False for a caller that only reads the run: a missing screenshot is then an error.
    """

    def __init__(self, run: Run, rollouts: Artifact, reporter: Reporter, *, renders: bool = True) -> None:
        self.folder = run.path / SCREENSHOTS
        self.reporter, self.renders = reporter, renders
        self._store, self._settings = ScreenshotStore(self.folder), RolloutsMeta.of(rollouts).rendering
        self._known: dict[str, Path | str] = {}

    def render_missing(self, pages: Iterable[str]) -> None:
        """Find the screenshots of pages, and render those that are missing.

        Raises:
            SweetError: there is no browser to render them with, or an asset of a page is missing.
        """
        missing = {key: page for page in pages if not self._find(key := page_key(page, self._settings))}
        if not missing:
            return
        if not self.renders:
            raise SweetError(
                f"{count(len(missing), 'page')} without a screenshot, which this command would have to render.",
                where=self.folder,
                fix="the same without --dry-run, or sweet eval, which renders the last pages",
            )
        try:
            run_main(self._render(list(missing.values())))
        except UsageError as error:
            raise UsageError(
                f"Without a screenshot: {count(len(missing), 'page')}, which cannot be rendered: {error.what}",
                where=error.where or self.folder,
                fix=error.fix,
            ) from error
        for key in missing:
            if not self._find(key):
                raise SweetError("A screenshot was made and cannot be read.", where=self._store.picture(key))

    def __call__(self, page: str) -> Path | str:
        key = page_key(page, self._settings)
        if key not in self._known:
            self.render_missing([page])
        return self._known[key]

    def _find(self, key: str) -> bool:
        if key not in self._known:
            stored = self._store.get(key)
            if stored is None:
                return False
            self._known[key] = str(stored) if isinstance(stored, RenderFailed) else self._store.picture(key)
        return True

    async def _render(self, pages: list[str]) -> None:
        from sweet.render import browsers

        with self.reporter.progress("screenshots", len(pages)) as bar:
            async with browsers.open_browsers(self.folder, settings=self._settings) as renderer:

                async def one(page: str) -> None:
                    try:
                        await renderer.shoot(page)
                    except RenderFailed as error:  # the store keeps only lasting failures
                        self._known[page_key(page, self._settings)] = str(error)
                    bar.advance()

                await run_all(one(page) for page in pages)
