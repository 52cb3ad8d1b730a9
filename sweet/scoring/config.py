"""The options of `sweet eval`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.device import Device
from sweet.sandbox.tiers import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.scoring.results.compare import FLIPS
from sweet.stages.base import OPERATIONAL, PlannedConfig


class EvalConfig(PlannedConfig):
    scorer: Literal["strict", "upstream", "both"] = "strict"
    """Code: strict takes the answer as people write it; upstream follows the published evaluator, its defects included;
    both tells the two side by side, and strict's are the rewards."""
    tolerance: float = Field(default=RELATIVE_TOLERANCE, ge=0, lt=1)
    """Code: relative difference within which strict takes floats for equal; 0 wants them equal bit for bit."""
    similarity: str | None = None
    """Pages: what compares screenshots: clip, a directory or hub id of a CLIP or SigLIP model, or the stand-in
    pixels. Without it clip where its weights are on this machine, else pixels."""
    from_: str | None = None
    """The rollouts to score; without it the newest."""
    compare: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """The baseline, with which these scores are compared task by task: RUN (its newest scores before), RUN:scores-2 or
    RUN:rollouts-1, as in sweet compare."""
    flips: int = Field(default=FLIPS, ge=0, json_schema_extra=OPERATIONAL)
    """With --compare: flipped tasks to name, of each direction."""
    allow_different: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    """With --compare: compare rewards by different scorers nevertheless; a warning says so."""
    best_of: Literal["critic"] | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """critic: also tell the success of the best of N dialogues of a task, N = 1, 2, 4, …, chosen by the critic."""
    critic: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """The critic that chooses; the newest finished one where not given."""
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the critic runs, and the model that compares screenshots."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Jail for the answers; auto takes the strongest that works here, unsafe has none."""
    workers: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Answers run at once, or browsers for pages; without it as many as suit the machine. With --ray, on each node."""
    ray: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Score on the nodes of a Ray cluster: auto (that of this machine), HOST:PORT, or local to start one here."""
