"""The options of `sweet eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from sweet.device import Device
from sweet.render.window import PictureRule, Window
from sweet.sandbox.tiers import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.scoring.results.compare import FLIPS
from sweet.stages.base import MAIN, OPERATIONAL, PlannedConfig, about
from sweet.stages.prices import PricedConfig
from sweet.tasks.base import ReferenceContext, TurnTokens


class EvalConfig(PlannedConfig, PricedConfig):
    scorer: Literal["strict", "upstream", "both"] = Field(default="strict", json_schema_extra=about("Scoring", MAIN))
    """Code: strict accepts answers as people write them; upstream follows the published evaluator, including its
    defects; both reports the two side by side, with strict's as the rewards. Pages: strict, or upstream for the
    published code's window, photograph and way to find the page."""
    tolerance: float = Field(default=RELATIVE_TOLERANCE, ge=0, lt=1, json_schema_extra=about("Scoring"))
    """Code: relative difference up to which strict treats floats as equal; 0 requires them to be equal bit for bit."""
    similarity: str | None = Field(default=None, json_schema_extra=about("Pages", MAIN))
    """Pages: the model that compares screenshots: clip, a directory or hub id of a CLIP or SigLIP model, or the
    stand-in pixels. Default: clip if its weights are on this machine, otherwise pixels."""
    window: Window | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: size of the browser's window, WIDTHxHEIGHT; default: that of the rollouts, with --scorer upstream
    1366x682. Scores at different windows are not compared."""
    pictures: PictureRule | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: what is shown for images of picsum.photos, placeholder or photo (sweet data assets --photo); default: as
    in the rollouts, with --scorer upstream photo if it is downloaded. Scores by different rules are not compared."""
    from_: str | None = Field(default=None, json_schema_extra=about("Data", MAIN))
    """The rollouts to score; default: the newest."""
    compare: str | None = Field(default=None, json_schema_extra=about("Comparison", MAIN, OPERATIONAL))
    """The baseline to compare these scores with, task by task: RUN (its newest earlier scores), RUN:scores-2 or
    RUN:rollouts-1, as in sweet compare."""
    flips: int = Field(default=FLIPS, ge=0, json_schema_extra=about("Comparison", OPERATIONAL))
    """With --compare: flipped tasks to list in each direction."""
    allow_different: bool = Field(default=False, json_schema_extra=about("Comparison", OPERATIONAL))
    """With --compare: compare rewards by different scorers anyway, with a warning."""
    best_of: Literal["critic", "llm"] | None = Field(
        default=None, json_schema_extra=about("Best of N", MAIN, OPERATIONAL)
    )
    """Also report the success of the best of N finished dialogues of a task, N = 1, 2, 4, …, chosen by the critic, or
    by a language model that scores each dialogue (--judge-model). sweet rollout --best-of chooses at each turn."""
    critic: str | None = Field(default=None, json_schema_extra=about("Best of N", OPERATIONAL))
    """The critic that chooses; default: the newest finished one."""
    reference_context: ReferenceContext | None = Field(default=None, json_schema_extra=about("Best of N", OPERATIONAL))
    """With --best-of critic: what the critic's reference reads, hidden or dialogue, as in sweet rank."""
    turn_tokens: TurnTokens | None = Field(default=None, json_schema_extra=about("Best of N", OPERATIONAL))
    """With --best-of critic: the tokens of a thinking agent's turns that the critic's means run over, as in sweet
    rank."""
    judge_model: str | None = Field(default=None, json_schema_extra=about("Best of N", OPERATIONAL))
    """The model that chooses with --best-of llm: a directory or a hub id."""
    judge_url: list[str] = Field(default_factory=list, json_schema_extra=about("Best of N", OPERATIONAL))
    """OpenAI-compatible server of that model; may be given several times. Without one it runs in this process."""
    judge_prompt: Path | None = Field(default=None, json_schema_extra=about("Best of N", OPERATIONAL))
    """File with the judge's prompt for a whole dialogue, instead of the packaged one; without {reference} in it the
    judge does not see the training-time information."""
    judge_tokens: int = Field(default=512, ge=1, json_schema_extra=about("Best of N", OPERATIONAL))
    """Tokens of the judge's answer at most; a model that reasons first needs more."""
    device: Device = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Device of the critic, and of the model that compares screenshots."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=about("Machine", MAIN, OPERATIONAL))
    """Sandbox tier for the answers; auto selects the strongest that works on this machine, unsafe has no jail."""
    workers: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", MAIN, OPERATIONAL))
    """Answers to run in parallel, or browsers for pages; default: by the machine's size. With --ray, on each node."""
    ray: str | None = Field(default=None, json_schema_extra=about("Machine", OPERATIONAL))
    """Score on the nodes of a Ray cluster: auto (this machine's cluster), HOST:PORT, or local to start one here."""

    @property
    def asks_models(self) -> bool:
        return self.best_of == "llm"
