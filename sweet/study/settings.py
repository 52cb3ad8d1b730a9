"""What a study compares: its sizes, its methods, and every hyperparameter of theirs.

A method is a name and how its actor is made. All actors start from the same agent and learn from the same offline
dialogues; those that learn from step-level pairs learn from the same sampled replies, judged by whom the method names.
The learning rates, weights and epochs (`sweet.training.hyperparameters`) were chosen on validation tasks, with as many
settings tried for each of `MAIN` (`benchmarks/micro_tuning.py`, whose results lie beside the benchmark's); the
ablations and controls differ from `sweet` in the one thing that they are named after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from sweet.device import Device
from sweet.sandbox.tiers import TierChoice
from sweet.stages.base import OPERATIONAL, StageConfig
from sweet.suggestions import did_you_mean
from sweet.tasks.micro.family import FAMILIES, MICRO, Family
from sweet.training.hyperparameters import SMALL, Learner

Options = dict[str, JsonValue]
"""Options of a stage, by the names of its configuration's fields."""


def _usual(learner: Learner) -> Options:
    """What a model of this size is trained with unless told otherwise (`sweet.training.hyperparameters`)."""
    return {"beta": 0.1, **asdict(SMALL[learner])}


CRITIC: Options = _usual("critic")
SWEET: Options = _usual("sweet")
MULTI_TURN_DPO: Options = _usual("multi-turn-dpo")
RFT: Options = {name: value for name, value in _usual("rft").items() if name in ("lr", "epochs", "batch")}
PAIRS: Options = {"pairs": 2, "strategy": "best-worst"}
"""Not the paper's 4 of random halves: of sixteen replies to a micro task hardly five are useful, so that half of the
upper half is as useless as the lower one."""


class Method(BaseModel):
    """How an actor is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    learns: Literal["nothing", "rft", "multi-turn-dpo", "sweet"] = "sweet"
    """What the actor is trained by."""
    judge: Literal["critic", "oracle", "random", "untrained"] | None = None
    """Who judges the sampled replies, where the actor learns from pairs of them."""
    critic: Options = Field(default_factory=dict)
    """Options of the critic's training, where a critic judges."""
    pair: Options = Field(default_factory=dict)
    """Options of the pairing."""
    actor: Options = Field(default_factory=dict)
    """Options of the actor's training."""

    def settings(self) -> dict[str, JsonValue]:
        """All but the name, without what the method has no use for."""
        told: dict[str, JsonValue] = self.model_dump(mode="json", exclude={"name"})
        return {name: value for name, value in told.items() if value}


def _by_critic(name: str, *, critic: Options | None = None, actor: Options | None = None) -> Method:
    """SWEET with some options changed."""
    return Method(name=name, judge="critic", critic=CRITIC | (critic or {}), pair=PAIRS, actor=SWEET | (actor or {}))


def _by_other(judge: Literal["oracle", "random", "untrained"]) -> Method:
    """SWEET with somebody else in the critic's place."""
    return Method(name=judge, judge=judge, pair=PAIRS, actor=SWEET)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(name="zero-shot", learns="nothing"),
        Method(name="rft", learns="rft", actor=RFT),
        Method(name="multi-turn-dpo", learns="multi-turn-dpo", actor=MULTI_TURN_DPO),
        _by_critic("sweet"),
        _by_critic("no-info", critic={"variant": "no-info"}),
        _by_critic("normalize-none", critic={"normalize": "none"}),
        _by_critic("regression", critic={"variant": "regression", **_usual("regression")}),
        _by_critic("upstream", critic={"recipe": "upstream", "nll": 0.0}, actor={"recipe": "upstream"}),
        _by_other("oracle"),
        _by_other("random"),
        _by_critic("beta-0", actor={"beta": 0.0}),
        _by_other("untrained"),
    )
}
"""Every method, in the order in which they are made and told."""

MAIN = ("rft", "multi-turn-dpo", "sweet")
"""The methods of the figure over the number of offline trajectories."""

CRITICS = {"critic": "sweet", "no_info": "no-info"}
"""The critics that are looked at by themselves, by their name in the results: that of which method."""


def _parted(value: Any) -> Any:
    """`a,b` and `a` with `b` are the same list."""
    words: Iterable[Any] = [value] if isinstance(value, str) else value
    return tuple(part.strip() for word in words for part in (word.split(",") if isinstance(word, str) else [word]))


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the order of METHODS."""
    for name in names:
        if name not in METHODS:
            meant = did_you_mean(name, tuple(METHODS))
            raise ValueError(f"there is no method {name!r}, there are {', '.join(METHODS)}{meant}")
    return tuple(name for name in METHODS if name in names)


MethodNames = Annotated[tuple[str, ...], BeforeValidator(_parted), AfterValidator(_known)]


class Sizes(StageConfig):
    """The smallest that show learning reliably with the micro agent on two CPU cores within a few minutes."""

    train_tasks: int = Field(default=300, ge=1)
    """Training tasks that dialogues are collected on."""
    samples: int = Field(default=6, ge=2)
    """Dialogues for each training task."""
    candidates: int = Field(default=16, ge=2)
    """Replies sampled and ranked at each turn."""
    fraction: float = Field(default=0.15, gt=0, le=1)
    """Share of the turns that are ranked."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Jail of the code that the agent writes."""


def _family(told: Mapping[str, Any]) -> Family:
    """The family of the dataset that was told; ValueError where it is none of the generated ones."""
    name = told.get("tasks")
    if name not in FAMILIES:
        raise ValueError(f"say how many turns and tokens dialogues on {name!r} have, or take {', '.join(FAMILIES)}")
    return FAMILIES[name]


class StudySizes(Sizes):
    """What decides the outcome of a seed's steps; what a step does not use does not concern it."""

    agent: str = "micro"
    """The model that everything starts from."""
    tasks: str = MICRO.name
    """The dataset."""
    turns: int = Field(default_factory=lambda told: _family(told).turns, ge=1)
    """The agent's turns in a dialogue; so many as the dataset is made for."""
    reply_tokens: int = Field(default_factory=lambda told: _family(told).reply_tokens, ge=1)
    """Tokens of a reply at most; enough for the dataset's answers."""
    split: str = "test"
    """The split that actors are evaluated on."""
    eval_tasks: int = Field(default=500, ge=1)
    """Tasks of each evaluation."""
    best_tasks: int = Field(default=60, ge=1)
    """Validation tasks of the figure best of N."""
    best_samples: int = Field(default=32, ge=2)
    """Dialogues for each of them."""
    credit_turns: int = Field(default=300, ge=1)
    """Turns of these dialogues at which credit is looked at."""
    parts: tuple[int, ...] = (8, 2)
    """The figure over offline trajectories: also an 8th and half of the training tasks."""
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where models are sampled and trained."""


class StudyConfig(StudySizes):
    seed: int = Field(default=0, ge=0)
    """The first seed."""
    seeds: int = Field(default=5, ge=1)
    """Seeds, one after the other."""
    methods: MethodNames = tuple(METHODS)
    """Methods to compare."""
    figures: bool = True
    """Also best of N, success by offline trajectories, and credit by kind of turn."""
    jobs: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Seeds at once; as many as there are cores where not given."""

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def sizes(self) -> StudySizes:
        return StudySizes(**{name: getattr(self, name) for name in StudySizes.model_fields})
