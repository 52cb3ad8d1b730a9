"""The output of `sweet view` without its application: trajectories as Rich renderables, as JSON or as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from rich.console import Group, RenderableType

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.stages.base import StageConfig, StageResult, about
from sweet.stages.record import Record as Metrics
from sweet.tasks.trajectory import dump
from sweet.units import count
from sweet.view.dialogue_view import DisplayOptions, dialogue
from sweet.view.pairs import Pair, Row, Side, open_side, pair_up
from sweet.view.records import Record, Records, Summary
from sweet.view.selection import parse, passes, search
from sweet.view.side_by_side import side_by_side_parts
from sweet.view.table import COLUMNS, PAIR_COLUMNS, Column, PrintedTable, SortKey, sort_rows

TABLE_ROWS = 50
"""Rows of the table without --limit."""


class ViewConfig(StageConfig):
    main_options = (
        *("id", "filter", "sort", "limit"),
        *("against", "hidden", "print_", "html", "serve", "from_"),
    )

    id: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Show this dialogue as a dialogue; a unique prefix of its id is enough."""
    filter: str = Field(default="", json_schema_extra=about("Selection"))
    """Only those that pass: outcome=failed,error, task=micro-*, reward<0.5, reward>0, fault=*, with --against also
    change=solved, lost, better, worse or differs. Other words are a text in the request, the turns or the answer."""
    sort: SortKey = Field(default="order", json_schema_extra=about("Selection"))
    """Sort by this column; order is the order of the file."""
    reverse: bool = Field(default=False, json_schema_extra=about("Selection"))
    """Reverse the order."""
    limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Selection"))
    """Show at most this many; default: 50 in the table and all elsewhere."""
    against: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Show these rollouts (B) beside the viewed ones (A), task by task: an id of this run, RUN, or RUN:rollouts-2."""
    hidden: bool = Field(default=False, json_schema_extra=about("Output"))
    """Also show the hidden information."""
    screenshots: bool = Field(default=True, json_schema_extra=about("Output"))
    """Show screenshots, also of the reference page, in the application and the HTML page; else name files."""
    print_: bool = Field(default=False, json_schema_extra=about("Output"))
    """Print the table and exit, also on a terminal."""
    html: Path | None = Field(default=None, json_schema_extra=about("Output"))
    """Write one self-contained HTML page to this file."""
    serve: bool = Field(default=False, json_schema_extra=about("Output"))
    """Serve the application to browsers of this machine, at an address with a secret token. Needs the package
    textual-serve."""
    port: int = Field(default=0, ge=0, le=65535, json_schema_extra=about("Output"))
    """The port to serve on; 0 is any free one."""
    from_: str | None = Field(default=None, json_schema_extra=about("Selection"))
    """Rollouts to view; default: those that are being written; after sweet train the agent that it
    keeps on test tasks; else the newest."""

    @model_validator(mode="after")
    def _agree(self) -> ViewConfig:
        if self.serve and (self.html or self.print_ or self.id):
            raise ValueError("--serve shows the application: leave out --html, --print and --id")
        if self.port and not self.serve:
            raise ValueError("--port requires --serve")
        if self.against is not None and self.html:
            raise ValueError("--html writes the dialogues of one rollout: leave out --against")
        if "change=" in parse(self.filter).conditions and self.against is None:
            what = "change= compares two rollouts, and --against names no other one."
            raise UsageError(what, where="--filter", fix="--against ROLLOUTS")
        return self


class ViewMetrics(Metrics):
    trajectories: int | None = None
    """dialogues of the artifact"""
    chosen: int | None = None
    """dialogues that match the filters; with --against pairs"""
    shown: int | None = None
    """dialogues in the output; with --against pairs"""
    pictures_left_out: int | None = None
    """screenshots omitted because of the page's size limit"""
    html: str | None = None
    """file of the page, with --html"""


class Viewer:
    """The dialogues that a configuration selects.

    Attributes:
        sides: the rollouts that are viewed (A), and with --against those that they are compared with, task by task (B).
    """

    def __init__(self, run: Run, config: ViewConfig) -> None:
        self.run, self.config = run, config
        self.sides = [Side.of(run, config.from_, draw=config.screenshots)]
        if config.against is not None:
            self.sides.append(open_side(run, config.against, draw=config.screenshots))

    @property
    def a(self) -> Side:
        return self.sides[0]

    @property
    def b(self) -> Side | None:
        return self.sides[1] if len(self.sides) > 1 else None

    @property
    def records(self) -> Records:
        return self.a.records

    def read_again(self) -> None:
        """Read the rollouts and their scores again.

        Raises:
            SweetError, OSError: they cannot be read; everything stays as it is.
        """
        read = [(side.records.run, side.records.rollouts.id) for side in self.sides]
        sides = [Side.of(run, name, draw=self.config.screenshots) for run, name in read]
        for side in sides:
            side.records.summaries()
        self.sides = sides

    def rows(self) -> list[Row]:
        """Return all rows: the dialogues, or the pairs with those of B."""
        every = self.records.summaries()
        return list(every) if self.b is None else list(pair_up(every, self.b.records.summaries()))

    @property
    def columns(self) -> tuple[Column, ...]:
        return COLUMNS if self.b is None else PAIR_COLUMNS

    def chosen(self) -> list[Row]:
        """Return the sorted rows that pass the filters, without `limit`."""
        config, filter = self.config, parse(self.config.filter)
        rows = [row for row in self.rows() if passes(row, filter)]
        if filter.text and self.records.summaries():
            matching = set(search(self.records.path, filter.text, hidden=config.hidden))
            rows = [row for row in rows if row.id in matching]
        return sort_rows(rows, self.columns, config.sort if self.b is None else "order", config.reverse)

    def shown(self) -> list[Summary]:
        """Return the first `limit` of the chosen dialogues, or the one with the given `id`."""
        if self.config.id:
            return [self.records.find(self.config.id)]
        return [row for row in self.chosen()[: self.config.limit] if isinstance(row, Summary)]

    def table(self) -> RenderableType:
        """Return the table of dialogues, or of pairs."""
        chosen, total = self.chosen(), len(self.rows())
        rows = chosen[: self.config.limit or TABLE_ROWS]
        caption = f"{len(chosen)} of {total} pass the filters" if len(chosen) < total else ""
        if caption and (text := parse(self.config.filter).text):  # it may be a condition that is misspelt
            caption += f" and contain {text!r}"
        if len(rows) < len(chosen):
            caption = f"{len(rows)} of {len(chosen)} shown, --limit N for more"
        title = self.title()
        if self.b is not None:
            title = f"A {self.a.name} · B {self.b.name} · {count(len(chosen), 'pair')}"
        return PrintedTable(rows, self.columns, title, caption)

    def title(self) -> str:
        """Return the run, the rollouts, who played them on which tasks, and their scores on one line."""
        records = self.records
        return " · ".join(filter(None, (self.run.name, records.rollouts.id, records.played_by, records.state)))

    def dialogue(self, name: str) -> RenderableType:
        """Return one dialogue by its id or the beginning of it; with B beside its partner there.

        Raises:
            UsageError: there is no such dialogue, or it has no partner.
        """
        left = self.records.find(name)
        record, options = self.records.record(left), self.options()
        if self.b is None:
            return dialogue(record, options)
        pairs = pair_up(self.records.summaries(), self.b.records.summaries())
        right = next((pair.right for pair in pairs if pair.left.id == left.id), None)
        if right is None:
            what = f"{self.b.records.rollouts.id} has no dialogue of this task beside it."
            raise UsageError(what, where=left.id, fix="--print lists the pairs")
        return Group(*side_by_side_parts(record, self.b.records.record(right), options, self.b.options.screenshots))

    def options(self) -> DisplayOptions:
        """Return how dialogues of A are shown."""
        return replace(self.a.options, hidden=self.config.hidden)

    def as_json(self) -> dict[str, Any]:
        """Return one object: with `id` the whole record, otherwise the rows."""
        if self.config.id is not None:
            (summary,) = self.shown()
            metrics = ViewMetrics()
            data: dict[str, Any] = {"trajectory": self._record_json(self.records.record(summary))}
        else:
            chosen = self.chosen()
            rows = [_row_json(row) for row in chosen[: self.config.limit]]
            total = len(self.records.summaries())
            metrics = ViewMetrics(trajectories=total, chosen=len(chosen), shown=len(rows))
            data = {"trajectories": rows} if self.b is None else {"against": self.b.records.rollouts.id, "pairs": rows}
        return StageResult("view", self.run.path, metrics, [self.records.rollouts]).as_json() | data

    def _record_json(self, record: Record) -> dict[str, Any]:
        row = dump(record.trajectory)
        if not self.config.hidden:
            row["task"] = {key: row["task"][key] for key in ("id", "problem_description")}
        return {
            "trajectory": row,
            "score": record.score.model_dump(mode="json") if record.score else None,
            "ranked": [turn.model_dump(mode="json") for _, turn in sorted(record.ranked.items())],
            "pairs": [pair.model_dump(mode="json") for _, pairs in sorted(record.pairs.items()) for pair in pairs],
        }


def _row_json(row: Row) -> dict[str, Any]:
    if isinstance(row, Pair):
        return {"a": row.left.id, "b": row.right.id, "change": row.change}
    return row._asdict()
