"""The metrics of `sweet view --json`."""

from __future__ import annotations

from sweet.stages.record import Record


class ViewMetrics(Record):
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
    export: str | None = None
    """file of the exported rows, with --export"""
