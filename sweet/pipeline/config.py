"""The options of `sweet train`. Those of its stages are in a recipe (`sweet.pipeline.recipe`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.stages.base import MAIN, OPERATIONAL, OneOrMore, about
from sweet.stages.prices import PricedConfig
from sweet.training.config import PushedConfig
from sweet.training.dialogue_tables import ROWS
from sweet.training.loggers import LogTarget


class LoopConfig(PricedConfig, PushedConfig):
    recipe: str | None = Field(default=None, json_schema_extra=about("Method", MAIN, OPERATIONAL))
    """The options of all stages: a TOML file, or a packaged one by name. Default: that of the run (RUN/recipe.toml),
    for a new run micro with the packaged agent, and paper with any other."""
    set_: list[str] = Field(default_factory=list, json_schema_extra=about("Method", MAIN, OPERATIONAL))
    """An option of a stage, as STAGE.OPTION=VALUE (rank.fraction=0.2), instead of the recipe's; may be given several
    times. evaluation.OPTION is one of the rollouts that only evaluate; servers.sim.OPTION, slurm.OPTION and
    prices.agent.OPTION are those of the other tables."""
    algorithm: str = Field(default="sweet", json_schema_extra=about("Method", MAIN))
    """What the actor learns by: sweet; a credit rule that learns online in many small steps (grpo, rloo, rft, …); one
    that learns from recorded dialogues (multi-turn-dpo); or that of an installed package. docs/credit.md lists all."""
    task: str = Field(default="code", json_schema_extra=about("Data", MAIN))
    """Kind of task: code, html, or that of an installed package."""
    tasks: str | None = Field(default=None, json_schema_extra=about("Data", MAIN))
    """Dataset by name or a JSONL file; default: the one of the kind of task."""
    agent: str = Field(default="micro", json_schema_extra=about("Agent", MAIN))
    """The model to start from: micro, micro-parts, a directory or a hub id. It plays first, and every critic and
    actor is trained from it."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=about("Agent", OPERATIONAL))
    """OpenAI-compatible server of this model; may be given several times. Trained actors are run here, or by the
    servers of the recipe."""
    sim: OneOrMore = Field(default="scripted", json_schema_extra=about("Simulated human", MAIN))
    """The simulated human: scripted, or a model that sees the reference; may be given several times, as in rollout."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human", MAIN, OPERATIONAL))
    """OpenAI-compatible server of the simulated human; may be given several times."""
    eval_sim: list[str] = Field(default=[], json_schema_extra=about("Simulated human"))
    """Evaluate each agent on the test tasks with this human too, which it does not learn with; both rates are shown."""
    eval_sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human", OPERATIONAL))
    """OpenAI-compatible server of that human; may be given several times. Without --eval-sim it is that of --sim."""
    eval_persona: list[str] = Field(default=[], json_schema_extra=about("Simulated human"))
    """How that human speaks, as in rollout; without --eval-sim it is the human of --sim with this persona."""
    rounds: int = Field(default=1, ge=1, json_schema_extra=about("Method", MAIN))
    """Actors trained one after the other: each plays the training tasks for the next, which learns from all rounds. An
    algorithm that learns online has one round, of train-online.steps."""
    early_stop: bool = Field(default=True, json_schema_extra=about("Method"))
    """With several rounds: evaluate each actor on validation tasks too, end when it no longer helps, and keep the best
    one. Otherwise, and where there are no validation tasks, the last one is kept."""
    patience: int = Field(default=1, ge=1, json_schema_extra=about("Method"))
    """End after this many rounds in a row that are not better on validation tasks than the best one before."""
    train_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data", MAIN))
    """Play only the first N training tasks."""
    samples: int = Field(default=4, ge=2, json_schema_extra=about("Data", MAIN))
    """Dialogues for each training task; those of an online training's steps are train-online.group."""
    eval_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Evaluate on only the first N test tasks, and at most N validation tasks."""
    eval_samples: int = Field(default=1, ge=1, json_schema_extra=about("Data"))
    """Dialogues for each task of an evaluation."""
    holdout: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data", MAIN))
    """With a file: share of its tasks that are test tasks, by a hash of the problem; default: 0.2 if its rows name no
    split."""
    holdout_validation: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are validation tasks; default: 0.1 if its rows name no split."""
    critic: Literal["same", "retrained"] = Field(default="retrained", json_schema_extra=about("Method"))
    """The critic from the second round on: trained on the dialogues of all rounds, or still the first, which overrates
    what later actors learn to say."""
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Method"))
    """Seed of sampling and training; a stage may have one of its own in the recipe."""
    log_to: tuple[LogTarget, ...] = Field(default=(), json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Also log the results of each round, with a table of dialogues, and the metrics of each training there; may be
    given several times."""
    log_dialogues: int = Field(
        default=ROWS, ge=0, le=1000, json_schema_extra=about("Checkpoints and logs", OPERATIONAL)
    )
    """Dialogues of each table that --log-to sends to W&B and Trackio, of the same test tasks in each round; 0 sends no
    texts."""
    push: str | None = Field(default=None, json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Push the actor that is kept, with its card, to this repository of the model hub, ORG/NAME, when all rounds have
    ended; a new one is private. Name and token are checked before anything begins."""
    redo: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Do finished steps again whose settings have changed since; otherwise changed settings are refused, with what they
    would repeat."""
    slurm: bool = Field(default=False, json_schema_extra=about("Machine", OPERATIONAL))
    """Print a script for sbatch that does this on the resources of the recipe's table [slurm], and do nothing."""
    verify: bool = Field(default=True, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Compare the sha256 of the artifacts that are read with the manifest."""
