"""The options and the metrics of `sweet data push`."""

from __future__ import annotations

from pathlib import Path

from sweet.stages.base import StageConfig
from sweet.stages.record import Record


class PushConfig(StageConfig):
    actor: str | None = None
    """Push this trained model of the run (actor-1), the one that the run keeps (kept), or the newest (last), instead of
    the data."""
    critic: str | None = None
    """Push this critic of the run (critic-1), or the newest (last); its card says that it is no chat model."""
    public: bool = False
    """Make a repository that everybody sees, if it does not exist; default: a private one."""
    license: str | None = None
    """License in the card, by the name that the hub has for it (apache-2.0); default of a model: that of its base."""
    out: Path | None = None
    """Write what would be pushed into this new directory instead, without the weights of a model, and push nothing."""


class PushMetrics(Record):
    repository: str
    """ORG/NAME on the model hub"""
    what: str
    """dataset or model"""
    url: str | None
    """of the commit; null with --out"""
    files: int
    """files of the commit, the card included"""
    bytes: int
    """their size"""
    rows: dict[str, int]
    """rows of a dataset by subset and split: dialogues/train, pairs/train, …"""
