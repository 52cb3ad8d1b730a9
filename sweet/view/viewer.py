"""The output of `sweet view` without its application: trajectories as Rich renderables, as JSON or as a page."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from rich.console import Group, RenderableType

from sweet.errors import UsageError
from sweet.files import check_target
from sweet.runs.run import Run
from sweet.stages.base import StageConfig, about
from sweet.tasks.scores import ScoreOutcome
from sweet.tasks.trajectory import Outcome, dump
from sweet.units import count
from sweet.view.bookmarks import Bookmarks, export
from sweet.view.dialogue_view import DisplayOptions, dialogue
from sweet.view.pairs import CHANGES, Change, Pair, Side, open_side, pair_up
from sweet.view.records import Record, Records, Summary
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.search import Search
from sweet.view.selection import Filter, SortKey, passes, sort_summaries
from sweet.view.side_by_side import side_by_side_parts
from sweet.view.terminal import PairTable, TrajectoryTable
from sweet.view.view_metrics import ViewMetrics

Ending = Literal[ScoreOutcome, Outcome]

TABLE_ROWS = 50
"""Rows of the table without --limit."""


class ViewConfig(StageConfig):
    main_options = (
        *("id", "outcome", "task", "search", "sort", "limit"),
        *("against", "hidden", "print_", "html", "serve", "from_"),
    )

    id: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Show this dialogue as a dialogue; a unique prefix of its id is enough."""
    outcome: list[Ending] = Field(default_factory=list, json_schema_extra=about("Selection"))
    """Only those with this outcome or ending; may be repeated."""
    task: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Only those of this task; * matches anything."""
    reward_below: float | None = Field(default=None, json_schema_extra=about("Selection"))
    """Only those with a lower reward."""
    reward_above: float | None = Field(default=None, json_schema_extra=about("Selection"))
    """Only those with a higher reward."""
    faults: bool = Field(default=False, json_schema_extra=about("Selection"))
    """Only those with a fault, of the dialogue or of the simulated human."""
    bookmarked: bool = Field(default=False, json_schema_extra=about("Selection"))
    """Only those with a bookmark."""
    search: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Only those whose request, turns or answer contain this text (case ignored); --hidden adds the hidden texts."""
    regex: bool = Field(default=False, json_schema_extra=about("Selection"))
    """The text is a regular expression; begin it with (?i) to ignore case."""
    sort: SortKey = Field(default="order", json_schema_extra=about("Selection"))
    """Sort by this column; order is the order of the file."""
    reverse: bool = Field(default=False, json_schema_extra=about("Selection"))
    """Reverse the order."""
    limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Selection"))
    """Show at most this many; default: 50 in the table and all elsewhere."""
    against: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Show these rollouts (B) beside the viewed ones (A), task by task: an id of this run, RUN, or RUN:rollouts-2."""
    changed: Change | None = Field(default=None, json_schema_extra=about("Selection"))
    """With --against: only tasks that B solved and A did not, or lost, or whose reward is better, worse, or differs."""
    hidden: bool = Field(default=False, json_schema_extra=about("Output"))
    """Also show the hidden information."""
    pictures: bool = Field(default=True, json_schema_extra=about("Output"))
    """Show screenshots, also of the reference page, in the HTML page and on terminals with colours; else name files."""
    print_: bool = Field(default=False, json_schema_extra=about("Output"))
    """Print the table and exit, also on a terminal."""
    html: Path | None = Field(default=None, json_schema_extra=about("Output"))
    """Write one self-contained HTML page to this file."""
    export: Path | None = Field(default=None, json_schema_extra=about("Output"))
    """Write the shown dialogues to this file like data export: JSON lines in the published layout."""
    serve: bool = Field(default=False, json_schema_extra=about("Output"))
    """Serve the application to browsers of this machine, at an address with a secret token; bookmarks are all that it
    writes. Needs the package textual-serve."""
    port: int = Field(default=0, ge=0, le=65535, json_schema_extra=about("Output"))
    """The port to serve on; 0 is any free one."""
    from_: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Rollouts to view; default: those that are being written, else the newest."""

    @model_validator(mode="after")
    def _agree(self) -> ViewConfig:
        if self.regex and self.search is None:
            raise ValueError("--regex requires --search TEXT")
        if self.serve and (self.html or self.export or self.print_ or self.id):
            raise ValueError("--serve shows the application: leave out --html, --export, --print and --id")
        if self.port and not self.serve:
            raise ValueError("--port requires --serve")
        if self.against is not None and (self.html or self.export):
            raise ValueError("--html and --export write the dialogues of one rollout: leave out --against")
        return self

    def filter(self, ids: frozenset[str] | None = None) -> Filter:
        """Return the filter of the options; `ids` are the result of the search and the bookmarks."""
        return Filter(
            outcomes=frozenset(self.outcome),
            task=self.task,
            reward_below=self.reward_below,
            reward_above=self.reward_above,
            faults=self.faults,
            ids=ids,
        )


class Viewer:
    """The trajectories that a configuration selects."""

    def __init__(self, run: Run, config: ViewConfig) -> None:
        self.run = run
        self.config = config
        self.records = Records(run, config.from_)
        self.screenshots = RunScreenshots.of(run, self.records.rollouts, draw=config.pictures)

    @cached_property
    def bookmarks(self) -> Bookmarks:
        return Bookmarks(self.run, self.records.rollouts.id)

    @cached_property
    def chosen(self) -> list[Summary]:
        """The sorted trajectories that pass the filters, without `limit`.

        Raises:
            UsageError: the regular expression is invalid.
        """
        filter = self.config.filter(self._ids())
        passing = (summary for summary in self.records.summaries() if passes(summary, filter))
        return sort_summaries(passing, self.config.sort, self.config.reverse)

    def _ids(self) -> frozenset[str] | None:
        """Return the ids that the search and the bookmarks select; None if neither is used."""
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
                fix = "search for the literal text without --regex" if self.config.regex else None
                raise UsageError(search.error, where=f"--search {pattern}", fix=fix)
        return found

    @property
    def shown(self) -> list[Summary]:
        """The first `limit` of `chosen`, or the trajectory with the given `id`."""
        return [self.records.find(self.config.id)] if self.config.id else self.chosen[: self.config.limit]

    def table(self) -> RenderableType:
        """Return the table of summaries."""
        rows, total = self.chosen[: self.config.limit or TABLE_ROWS], len(self.records.summaries())
        caption = ""
        if len(rows) < len(self.chosen):
            caption = f"{len(rows)} of {len(self.chosen)} shown, --limit N for more"
        elif len(self.chosen) < total:
            caption = f"{len(self.chosen)} of {total} pass the filters"
        return TrajectoryTable(rows, self.title(), caption)

    @cached_property
    def against(self) -> Side | None:
        """The rollouts to compare with; None without --against."""
        named = self.config.against
        return None if named is None else open_side(self.run, named, draw=self.config.pictures)

    def pairs(self) -> list[Pair]:
        """Return the pairs of the chosen dialogues with those of --against, filtered by --changed, without `limit`."""
        assert self.against is not None
        partners = {pair.id: pair for pair in pair_up(self.records.summaries(), self.against.records.summaries())}
        pairs = [partners[one.id] for one in self.chosen if one.id in partners]
        return pairs if self.config.changed is None else list(filter(CHANGES[self.config.changed][1], pairs))

    def pair(self, name: str) -> RenderableType:
        """Return a dialogue and its partner of --against, side by side.

        Raises:
            UsageError: there is no such dialogue, or it has no partner.
        """
        assert self.against is not None
        left = self.records.find(name)
        pairs = pair_up(self.records.summaries(), self.against.records.summaries())
        right = next((pair.right for pair in pairs if pair.left.id == left.id), None)
        if right is None:
            what = f"{self.against.records.rollouts.id} has no dialogue of this task beside it."
            raise UsageError(what, where=left.id, fix="--print lists the pairs")
        both = self.records.record(left), self.against.records.record(right)
        return Group(*side_by_side_parts(*both, self._display_options(), self.against.screenshots))

    def pairs_table(self) -> RenderableType:
        """Return the table of pairs."""
        assert self.against is not None
        pairs = self.pairs()
        rows = pairs[: self.config.limit or TABLE_ROWS]
        caption = f"{len(rows)} of {len(pairs)} shown, --limit N for more" if len(rows) < len(pairs) else ""
        a = Side(self.records, self.screenshots)
        return PairTable(rows, f"A {a.name} · B {self.against.name} · {count(len(pairs), 'pair')}", caption)

    def title(self) -> str:
        """Return the run, the rollouts and their scores on one line."""
        records = self.records
        return " · ".join(filter(None, (self.run.path.name, records.rollouts.id, records.scored, records.state)))

    def dialogue(self, name: str) -> RenderableType:
        """Return one trajectory by its id or the beginning of it."""
        record = self.records.record(self.records.find(name))
        return dialogue(record, self._display_options())

    def _display_options(self) -> DisplayOptions:
        return DisplayOptions.of(self.records, hidden=self.config.hidden, screenshots=self.screenshots)

    def as_json(self) -> dict[str, Any]:
        """Return one object: with `id` the whole record, otherwise the summaries."""
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
        total = len(self.records.summaries())
        if self.against is not None:
            pairs = self.pairs()
            shown = pairs[: self.config.limit]
            result["metrics"] = ViewMetrics(trajectories=total, chosen=len(pairs), shown=len(shown)).as_json()
            both = [{"a": pair.left.id, "b": pair.right.id, "change": pair.change} for pair in shown]
            return result | {"against": self.against.records.rollouts.id, "pairs": both}
        metrics = ViewMetrics(trajectories=total, chosen=len(self.chosen), shown=len(self.shown))
        result["metrics"] = metrics.as_json()
        return result | {"trajectories": [self._summary_json(summary) for summary in self.shown]}

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
        """Write the page. Returns the numbers of trajectories and of omitted pictures."""
        from sweet.view.dialogues_page import write_page
        from sweet.view.html_screenshots import HtmlScreenshots
        from sweet.view.page_overview import overview

        check_target(path)
        shown, options = self.shown, self._display_options()
        above = overview(self.records, shown, options.settings)
        pictures = None if self.screenshots is None else HtmlScreenshots(self.screenshots)
        write_page(path, self.title(), shown, self.records.record, options, overview=above, pictures=pictures)
        return len(shown), 0 if pictures is None else pictures.omitted

    def write_export(self, path: Path) -> int:
        """Write the trajectories as JSON lines. Returns their number."""
        return export(self.records, self.shown, path)
