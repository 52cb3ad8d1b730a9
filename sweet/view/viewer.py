"""What `sweet view` shows without its application: trajectories of a run as Rich renderables, as JSON or as a page."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from rich.console import RenderableType

from sweet.errors import UsageError
from sweet.files import check_target
from sweet.runs.run import Run
from sweet.stages.base import StageConfig
from sweet.tasks.scores import ScoreOutcome
from sweet.tasks.trajectory import Outcome, dump
from sweet.view.bookmarks import Bookmarks, export
from sweet.view.dialogue_view import Manner, dialogue
from sweet.view.records import Record, Records, Summary
from sweet.view.screenshots import Album
from sweet.view.search import Search
from sweet.view.selection import Filter, SortKey, in_order, passes
from sweet.view.terminal import TrajectoryTable

Ending = Literal[ScoreOutcome, Outcome]

TABLE_ROWS = 50
"""Rows of the table where no limit is given."""


class ViewConfig(StageConfig):
    id: str | None = None
    """Show this trajectory as a dialogue; the beginning of its id is enough where it is the only one."""
    outcome: list[Ending] = Field(default_factory=list)
    """Only those that scored or ended so; may be given several times."""
    task: str | None = None
    """Only those of this task; * stands for anything."""
    reward_below: float | None = None
    """Only those with a lower reward."""
    reward_above: float | None = None
    """Only those with a higher reward."""
    faults: bool = False
    """Only those with a fault, of the dialogue or of the simulated human."""
    bookmarked: bool = False
    """Only those with a bookmark."""
    search: str | None = None
    """Only those in whose request, turns or answer this text stands, in any case; with --hidden in c too."""
    regex: bool = False
    """The text is a regular expression; (?i) in front of it for any case."""
    sort: SortKey = "order"
    """What comes first; order is that of the file."""
    reverse: bool = False
    """The other way round."""
    limit: int | None = Field(default=None, ge=1)
    """Show at most so many; without it 50 in the table and all elsewhere."""
    hidden: bool = False
    """Show the hidden information too."""
    pictures: bool = True
    """Show screenshots, that of the page in mind too, in the page and on terminals with colours; else name files."""
    print_: bool = False
    """Print the table and end, on a terminal too."""
    html: Path | None = None
    """Write one self-contained page to this file."""
    export: Path | None = None
    """Write those that are shown to this file, as data export does: JSON lines in the published layout."""
    from_: str | None = None
    """Rollouts to view; without it those that are being written, else the newest."""

    @model_validator(mode="after")
    def _agree(self) -> ViewConfig:
        if self.regex and self.search is None:
            raise ValueError("--regex says how --search TEXT is meant, which is not given")
        return self

    def filter(self, ids: frozenset[str] | None = None) -> Filter:
        """What the options leave, but for search and bookmarks, whose `ids` are found elsewhere."""
        return Filter(
            outcomes=frozenset(self.outcome),
            task=self.task,
            reward_below=self.reward_below,
            reward_above=self.reward_above,
            faults=self.faults,
            ids=ids,
        )


class Viewer:
    """The trajectories that a configuration asks for."""

    def __init__(self, run: Run, config: ViewConfig) -> None:
        self.run = run
        self.config = config
        self.records = Records(run, config.from_)
        self.album = Album.of(run, self.records.rollouts, draw=config.pictures)

    @cached_property
    def bookmarks(self) -> Bookmarks:
        return Bookmarks(self.run, self.records.rollouts.id)

    @cached_property
    def chosen(self) -> list[Summary]:
        """All that pass the filters, sorted; `limit` is not applied yet.

        Raises:
            UsageError: the regular expression cannot be read.
        """
        filter = self.config.filter(self._ids())
        passing = (summary for summary in self.records.summaries() if passes(summary, filter))
        return in_order(passing, self.config.sort, self.config.reverse)

    def _ids(self) -> frozenset[str] | None:
        """What the search found and the bookmarks name, where they are asked for."""
        sets = []
        if self.config.bookmarked:
            sets.append(frozenset(self.bookmarks.notes))
        if self.config.search is not None:
            sets.append(self._found(self.config.search))
        return frozenset.intersection(*sets) if sets else None

    def _found(self, pattern: str) -> frozenset[str]:
        if not self.records.summaries():
            return frozenset()
        with Search(self.records.path, pattern, regex=self.config.regex, hidden=self.config.hidden) as search:
            found = frozenset(search.wait())
            if search.error is not None:
                fix = "without --regex the text is sought as it stands" if self.config.regex else None
                raise UsageError(search.error, where=f"--search {pattern}", fix=fix)
        return found

    @property
    def shown(self) -> list[Summary]:
        """Those of `chosen` that the limit leaves; the one that `id` names."""
        return [self.records.find(self.config.id)] if self.config.id else self.chosen[: self.config.limit]

    def table(self) -> RenderableType:
        """The table of summaries."""
        rows, total = self.chosen[: self.config.limit or TABLE_ROWS], len(self.records.summaries())
        caption = ""
        if len(rows) < len(self.chosen):
            caption = f"{len(rows)} of {len(self.chosen)} shown, --limit N for more"
        elif len(self.chosen) < total:
            caption = f"{len(self.chosen)} of {total} pass the filters"
        return TrajectoryTable(rows, self.title(), caption)

    def title(self) -> str:
        """The run, the rollouts and their scores in a line."""
        records = self.records
        return " · ".join(filter(None, (self.run.path.name, records.rollouts.id, records.scored, records.state)))

    def dialogue(self, name: str) -> RenderableType:
        """One trajectory, by its id or the beginning of it."""
        record = self.records.record(self.records.find(name))
        return dialogue(record, self._manner())

    def _manner(self) -> Manner:
        return Manner.of(self.records, hidden=self.config.hidden, album=self.album)

    def as_json(self) -> dict[str, Any]:
        """One object: with `id` the whole record of it, else the summaries."""
        rollouts = self.records.rollouts
        result: dict[str, Any] = {
            "stage": "view",
            "run": str(self.run.path),
            "metrics": {},
            "artifacts": [{"id": rollouts.id, "kind": rollouts.kind, "path": rollouts.path, "rows": rollouts.rows}],
        }
        if self.config.id is not None:
            (summary,) = self.shown
            return result | {"trajectory": self._record_json(self.records.record(summary), summary.id)}
        shown, total = self.shown, len(self.records.summaries())
        result["metrics"] = {"trajectories": total, "chosen": len(self.chosen), "shown": len(shown)}
        return result | {"trajectories": [self._summary_json(summary) for summary in shown]}

    def _summary_json(self, summary: Summary) -> dict[str, Any]:
        row = summary._asdict()
        del row["offset"], row["length"]
        return row | {"bookmark": self.bookmarks.notes.get(summary.id)}

    def _record_json(self, record: Record, name: str) -> dict[str, Any]:
        row = dump(record.trajectory)
        if not self.config.hidden:
            row["task"] = {key: row["task"][key] for key in ("id", "problem_description")}
        return {
            "trajectory": row,
            "score": record.score.model_dump(mode="json") if record.score else None,
            "ranked": [turn.model_dump(mode="json") for _, turn in sorted(record.ranked.items())],
            "pairs": [pair.model_dump(mode="json") for _, pairs in sorted(record.pairs.items()) for pair in pairs],
            "bookmark": self.bookmarks.notes.get(name),
        }

    def write_html(self, path: Path) -> tuple[int, int]:
        """Write the page; returns how many trajectories stand in it, and how many pictures did not fit."""
        from sweet.view.dialogues_page import write_page
        from sweet.view.html_screenshots import Figures

        check_target(path)
        shown = self.shown
        records = ((summary, self.records.record(summary)) for summary in shown)
        figures = None if self.album is None else Figures(self.album)
        write_page(path, self.title(), records, self._manner(), figures=figures)
        return len(shown), 0 if figures is None else figures.left_out

    def write_export(self, path: Path) -> int:
        """Write the trajectories as JSON lines; returns how many."""
        return export(self.records, self.shown, path)
