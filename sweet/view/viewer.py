"""`sweet view`: chooses trajectories of a run and gives them as Rich renderables, as JSON or as a page.

The command shows what it is given. The browser at the end of the file asks for a key, a line at a time, through the
functions that the command hands it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.console import RenderableType

from sweet.runs.run import Run
from sweet.stages.base import StageConfig
from sweet.tasks.trajectory import dump
from sweet.view.html import check_target
from sweet.view.pictures import Album
from sweet.view.records import Record, Records, Summary
from sweet.view.terminal import TrajectoryTable, dialogue

Ending = Literal[
    "passed",
    "failed",
    "error",
    "timeout",
    "crash",
    "no_answer",
    "invalid",
    "answered",
    "out_of_turns",
    "context_overflow",
    "agent_error",
    "human_error",
    "deadline",
]

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
    sort: Literal["order", "reward", "turns", "tokens", "seconds", "outcome", "task"] = "order"
    """What comes first; order is that of the file."""
    reverse: bool = False
    """The other way round."""
    limit: int | None = Field(default=None, ge=1)
    """Show at most so many; without it 50 in the table and all in --json and --html."""
    hidden: bool = False
    """Show the hidden information too."""
    pictures: bool = True
    """Show screenshots, that of the page in mind too, in the page and on terminals with colours; else name files."""
    html: Path | None = None
    """Write one self-contained page to this file."""
    from_: str | None = None
    """Rollouts to view; without it the newest."""


class Viewer:
    """The trajectories that a configuration asks for."""

    def __init__(self, run: Run, config: ViewConfig) -> None:
        self.run = run
        self.config = config
        self.records = Records(run, config.from_)
        self.album = Album.of(run, self.records.rollouts, draw=config.pictures)
        self._total = 0
        self._chosen: list[Summary] | None = None

    @property
    def chosen(self) -> list[Summary]:
        """All that pass the filters, sorted; `limit` is not applied yet."""
        if self._chosen is None:
            self._chosen = []
            for summary in self.records.summaries():
                self._total += 1
                if passes(summary, self.config):
                    self._chosen.append(summary)
            self._chosen = in_order(self._chosen, self.config)
        return self._chosen

    @property
    def shown(self) -> list[Summary]:
        return self.chosen[: self.config.limit]

    def table(self) -> RenderableType:
        """The table of summaries."""
        rows = self.chosen[: self.config.limit or TABLE_ROWS]
        caption = ""
        if len(rows) < len(self.chosen):
            caption = f"{len(rows)} of {len(self.chosen)} shown, --limit N for more"
        elif len(self.chosen) < self._total:
            caption = f"{len(self.chosen)} of {self._total} pass the filters"
        scores = self.records.scores.id if self.records.scores else "not scored: sweet eval"
        return TrajectoryTable(rows, f"{self.run.path.name} · {self.records.rollouts.id} · {scores}", caption)

    def dialogue(self, name: str) -> RenderableType:
        """One trajectory, by its id or the beginning of it."""
        return self._dialogue(self.records.find(name))

    def _dialogue(self, summary: Summary) -> RenderableType:
        return dialogue(self.records.record(summary), hidden=self.config.hidden, album=self.album)

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
            return result | {"trajectory": self._record_json(self.records.record(self.records.find(self.config.id)))}
        shown = self.shown
        result["metrics"] = {"trajectories": self._total, "chosen": len(self.chosen), "shown": len(shown)}
        return result | {"trajectories": [_summary_json(summary) for summary in shown]}

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

    def write_html(self, path: Path) -> tuple[int, int]:
        """Write the page; returns how many trajectories stand in it, and how many pictures did not fit."""
        from sweet.view.figures import Figures
        from sweet.view.page import write_page

        check_target(path, "--html")
        shown = [self.records.find(self.config.id)] if self.config.id else self.shown
        records = ((summary, self.records.record(summary)) for summary in shown)
        title = f"{self.run.path.name} · {self.records.rollouts.id}"
        figures = None if self.album is None else Figures(self.album)
        write_page(path, title, records, hidden=self.config.hidden, figures=figures)
        return len(shown), 0 if figures is None else figures.left_out

    def browse(self, show: Callable[[RenderableType], None], ask: Callable[[str], str]) -> None:
        """The table, then dialogues by key: a line read by `ask` (which raises EOFError at the end of input)."""
        show(self.table())
        shown = self.shown
        position = -1
        while shown:
            try:
                key = ask(f"number 1-{len(shown)}, n next, p previous, f next failure, t table, h hidden, q quit: ")
            except EOFError:
                return
            key = key.strip()
            if key in ("q", "quit"):
                return
            if key == "t":
                show(self.table())
                continue
            if key == "h":
                self.config = self.config.model_copy(update={"hidden": not self.config.hidden})
                position = max(position, 0)
            else:
                there = _next_position(key, position, shown)
                if there is None:
                    show("There is none." if key else "n, p, f, t, h, q or a number.")
                    continue
                position = there
            show(self._dialogue(shown[position]))


def _next_position(key: str, position: int, shown: list[Summary]) -> int | None:
    """Where a key leads; None where there is nothing."""
    if key in ("n", ""):
        there: int | None = position + 1
    elif key == "p":
        there = position - 1
    elif key == "f":
        there = next((i for i in range(position + 1, len(shown)) if shown[i].outcome not in ("passed", None)), None)
    else:
        there = int(key) - 1 if key.isascii() and key.isdigit() else None
    return there if there is not None and 0 <= there < len(shown) else None


def passes(summary: Summary, config: ViewConfig) -> bool:
    """Whether a trajectory passes the filters. One without a reward passes no filter on rewards."""
    if config.outcome and not {summary.outcome, summary.ended} & set(config.outcome):
        return False
    if config.task is not None and not fnmatch.fnmatchcase(summary.task_id, config.task):
        return False
    if config.reward_below is None and config.reward_above is None:
        return True
    reward = summary.reward
    if reward is None:
        return False
    below = config.reward_below is None or reward < config.reward_below
    return below and (config.reward_above is None or reward > config.reward_above)


def in_order(summaries: list[Summary], config: ViewConfig) -> list[Summary]:
    """Sorted as asked; what is not known comes last either way."""
    if config.sort == "order":
        return summaries[::-1] if config.reverse else summaries
    keyed = [(_sort_value(summary, config.sort), summary) for summary in summaries]
    known = sorted(
        ((value, summary) for value, summary in keyed if value is not None),
        key=lambda item: item[0],
        reverse=config.reverse,
    )
    return [summary for _, summary in known] + [summary for value, summary in keyed if value is None]


def _sort_value(summary: Summary, key: str) -> Any:
    return {
        "reward": summary.reward,
        "turns": summary.turns,
        "tokens": summary.tokens,
        "seconds": summary.seconds,
        "outcome": summary.outcome or summary.ended,
        "task": summary.task_id,
    }[key]


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "task_id": summary.task_id,
        "outcome": summary.outcome,
        "ended": summary.ended,
        "reward": summary.reward,
        "passed": summary.passed,
        "total": summary.total,
        "turns": summary.turns,
        "tokens": summary.tokens,
        "seconds": summary.seconds,
    }
