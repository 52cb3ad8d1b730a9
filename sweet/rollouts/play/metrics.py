"""The metrics of `sweet play`, and the work that its plan counts."""

from __future__ import annotations

from sweet.stages.record import Record


class PlayMetrics(Record):
    """Of all dialogues of the artifact, those of earlier calls included."""

    episodes: int
    """finished dialogues"""
    played: int
    """of these, dialogues that were finished in this call"""
    skipped: int
    """dialogues that were skipped; --skipped offers them again"""
    missing: int
    """dialogues that are neither finished nor skipped"""
    under_way: str | None
    """the dialogue that was begun and not finished; null without one"""
    turns: int
    """turns of the agent"""
    outcomes: dict[str, int]
    """dialogues by how they ended"""
    seconds: float
    """duration of this call"""


class PlayWork(Record):
    """The work of `sweet play`."""

    tasks: int
    """tasks that are played"""
    dialogues: int
    """dialogues of all tasks"""
