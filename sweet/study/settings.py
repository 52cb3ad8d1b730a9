"""The settings of a study: its sizes, its methods, and all their hyperparameters.

A method is a recipe: a name, a credit rule that the actor's training uses, and options. All actors start from the same
agent. Those that learn from step-level pairs learn from the same sampled replies, judged by the method's judge; those
that learn from whole dialogues get as many more of these as the replies have tokens (`StudySizes.equal`); those that
learn online (`sweet train-online`) end when the agent has written as many. The learning rates, weights and epochs
(`sweet.training.hyperparameters`, `ONLINE`) were chosen on validation tasks, for each method of `TUNED` with a number
of settings (`benchmarks/results/micro-tuning.json`). The ablations and controls
differ from `sweet` only in what they are named after.

The published code differs from `sweet` in two ways at once: in its protocol (losses, masks, ranking) and in its
settings (likelihood terms and pairs). Four methods vary them separately:

                         protocol paper      protocol upstream
    chosen here          sweet             upstream-tuned
    as published         paper-settings    upstream

Learning rates, epochs and batches are those of `sweet` in all four, because the published ones are for a model eight
thousand times as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from sweet.device import Device
from sweet.json_value import JsonValue
from sweet.sandbox.tiers import TierChoice
from sweet.stages.base import OPERATIONAL, StageConfig, about
from sweet.suggestions import did_you_mean
from sweet.tasks.micro.family import FAMILIES, MICRO, Family
from sweet.training.hyperparameters import defaults

Options = dict[str, JsonValue]
"""Options of a stage, by the names of its configuration's fields."""


ORDER: Options = {"shuffle": "examples"}
"""Of the examples of every training on recorded data. The recorded results (`benchmarks/results`) were made with this
order, and the settings were chosen with it; the trainings' default is another one since (docs/training.md)."""


def _usual(learner: str) -> Options:
    """Return the default hyperparameters of a small model (`sweet.training.hyperparameters`), and the order."""
    return {"beta": 0.1, **asdict(defaults(learner, large=False)), **ORDER}


def _weighted(rule: str) -> Options:
    """Return those of a rule that compares no two examples, which has no beta."""
    return {name: value for name, value in _usual(rule).items() if name in ("lr", "epochs", "batch", *ORDER)}


CRITIC: Options = _usual("critic")
SWEET: Options = _usual("sweet")
MULTI_TURN_DPO: Options = _usual("multi-turn-dpo")
RFT: Options = _weighted("rft")
PAIRS: Options = {"pairs": 2, "strategy": "best-worst"}
"""Differs from the paper's 4 pairs of random halves: hardly five of sixteen replies to a micro task are useful, so half
of the upper half is as useless as the lower half."""

PUBLISHED_PAIRS: Options = {"pairs": 4, "strategy": "random-halves"}
PUBLISHED_CRITIC_NLL: Options = {"nll": defaults("critic", large=True).nll}
PUBLISHED_NLL: Options = {"nll": defaults("sweet", large=True).nll}
"""The settings of the paper and of the published code that do not depend on the size of the model."""

UPSTREAM: Options = {"protocol": "upstream"}

WIDE_PAIRS: Options = {"pairs": 4, "min_gap_share": 0.6}
SUMMED: Options = {"beta": 0.5, "nll": 1.0, "rule_option": ["likelihood=sum"]}
"""What `sweet-plus` changes in pairs and actor (`benchmarks/results/sweet-attempts.json`)."""
KEPT: Options = {"unpaired": "best"}
"""What `sweet-anchored` changes in the pairs of `sweet-lookahead`."""


class Method(BaseModel):
    """A recipe: how an actor is made. `sweet.study.study_steps` has the steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    learns: str = "sweet"
    """The credit rule of the actor's training; `nothing` for the agent as it is."""
    judge: Literal["critic", "lookahead", "oracle", "random", "untrained"] | None = None
    """The judge of the sampled replies, where the actor learns from replies to one turn instead of whole dialogues."""
    online: bool = False
    """Whether the actor learns in many small steps from dialogues that it plays itself, until the tokens are used up.
    Otherwise the agent that all methods start from plays all dialogues."""
    critic: Options = Field(default_factory=dict)
    """Options of the critic's training, where a critic judges, or the credit rule asks one."""
    rank: Options = Field(default_factory=dict)
    """Options of the critic's ranking."""
    pair: Options = Field(default_factory=dict)
    """Options of the pairing."""
    actor: Options = Field(default_factory=dict)
    """Options of the actor's training, `sweet train-actor` or `sweet train-online`."""

    def settings(self) -> dict[str, JsonValue]:
        """Return all fields but the name, without the empty ones."""
        fields: dict[str, JsonValue] = self.model_dump(mode="json", exclude={"name"})
        return {name: value for name, value in fields.items() if value}


ONLINE: dict[str, Options] = {
    "grpo": {"lr": 1e-3, "batch": 128, "epochs": 1},
    "rloo": {"lr": 1e-3, "batch": 128, "epochs": 1},
    "istar": {"lr": 3e-4, "batch": 32, "epochs": 1},
    "opsd": {"lr": 3e-4, "batch": 32, "epochs": 4},
    "sweet-pg": {"lr": 1e-3, "batch": 128, "epochs": 1, "rule_option": ["episode=true", "weight=0.1"]},
}
"""What was chosen for each method that learns online, by its rule: of the settings within one error of the best, the
one with the fewest updates. Over `STEP`."""
STEP: Options = {"tasks_per_step": 16, "group": 8}
"""The dialogues of a step, where a method does not differ."""


def _online(rule: str, *, critic: Options | None = None) -> Method:
    """Return a method whose actor learns from its own dialogues."""
    return Method(name=rule, learns=rule, online=True, critic=critic or {}, actor=STEP | ONLINE[rule])


def _by_critic(
    name: str,
    *,
    critic: Options | None = None,
    rank: Options | None = None,
    pair: Options | None = None,
    actor: Options | None = None,
) -> Method:
    """Return SWEET with some options changed."""
    return Method(
        name=name,
        judge="critic",
        critic=CRITIC | (critic or {}),
        rank=rank or {},
        pair=PAIRS | (pair or {}),
        actor=SWEET | (actor or {}),
    )


def _by_other(judge: Literal["oracle", "random", "untrained"]) -> Method:
    """Return SWEET with another judge instead of the critic."""
    return Method(name=judge, judge=judge, pair=PAIRS, actor=SWEET)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(name="zero-shot", learns="nothing"),
        Method(name="rft", learns="rft", actor=RFT),
        Method(name="multi-turn-dpo", learns="multi-turn-dpo", actor=MULTI_TURN_DPO),
        _online("grpo"),
        _online("rloo"),
        _online("istar"),
        _online("opsd"),
        _online("sweet-pg", critic=CRITIC),
        Method(
            name="sweet-pg-candidates",
            learns="sweet-pg-candidates",
            judge="critic",
            critic=CRITIC,
            actor=_weighted("sweet-pg-candidates"),
        ),
        _by_critic("sweet"),
        _by_critic("sweet-plus", rank={"reference_context": "dialogue"}, pair=WIDE_PAIRS, actor=SUMMED),
        Method(name="sweet-lookahead", judge="lookahead", pair=PAIRS | WIDE_PAIRS, actor=SWEET | SUMMED),
        Method(name="sweet-anchored", judge="lookahead", pair=PAIRS | WIDE_PAIRS | KEPT, actor=SWEET | SUMMED),
        _by_critic("no-info", critic={"variant": "no-info"}),
        _by_critic("no-info-reference", rank={"reference_context": "dialogue"}),
        _by_critic("normalize-none", critic={"normalize": "none"}),
        _by_critic("regression", critic={"variant": "regression", **_usual("regression")}),
        _by_critic(
            "paper-settings",
            critic=PUBLISHED_CRITIC_NLL,
            pair=PUBLISHED_PAIRS,
            actor=PUBLISHED_NLL,
        ),
        # The published command of the critic has no likelihood term.
        _by_critic("upstream", critic=UPSTREAM | {"nll": 0.0}, pair=PUBLISHED_PAIRS, actor=UPSTREAM | PUBLISHED_NLL),
        _by_critic("upstream-tuned", critic=UPSTREAM, actor=UPSTREAM),
        _by_other("oracle"),
        _by_other("random"),
        _by_critic("beta-0", actor={"beta": 0.0}),
        _by_other("untrained"),
    )
}
"""All methods, in the order in which they are made and reported."""

TUNED = ("rft", "multi-turn-dpo", "grpo", "istar", "opsd", "sweet-pg", "sweet")
"""The methods whose settings are tuned; `rloo` has those of `grpo`."""

CURVES = (*TUNED, "rloo", "sweet-pg-candidates", "sweet-plus", "sweet-lookahead", "untrained")
"""The methods that have a learning curve over generated tokens."""

CRITICS = {"critic": "sweet", "no_info": "no-info"}
"""The critics that are measured separately: the name in the results, and the method that has the critic."""

TURN_JUDGES = CRITICS | {"oracle": "oracle", "untrained": "untrained"}
"""The judges that choose the best of N replies at each turn: the name in the results, and the method that has the
judge."""


def _split_names(value: Any) -> Any:
    """Split names at commas: `a,b` is the same list as `a` and `b`."""
    words: Iterable[Any] = [value] if isinstance(value, str) else value
    return tuple(part.strip() for word in words for part in (word.split(",") if isinstance(word, str) else [word]))


def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in the order of METHODS; raise ValueError for an unknown one."""
    for name in names:
        if name not in METHODS:
            suggestion = did_you_mean(name, tuple(METHODS))
            raise ValueError(f"there is no method {name!r}, there are {', '.join(METHODS)}{suggestion}")
    return tuple(name for name in METHODS if name in names)


MethodNames = Annotated[tuple[str, ...], BeforeValidator(_split_names), AfterValidator(_in_order)]


Equal = Literal["tokens", "dialogues"]
"""What is the same for all methods of a study (`StudySizes.equal`)."""


def _generated(name: str) -> str:
    """Return the name of a generated dataset; raise ValueError for another one."""
    if name not in FAMILIES:
        suggestion = did_you_mean(name, tuple(FAMILIES))
        raise ValueError(f"a study is of generated tasks: {', '.join(FAMILIES)}{suggestion}")
    return name


StudyTasks = Annotated[str, AfterValidator(_generated)]


class Sizes(StageConfig):
    """The defaults are the smallest sizes that show learning reliably with the micro agent, within a few minutes on two
    CPU cores."""

    train_tasks: int = Field(default=300, ge=1, json_schema_extra=about("Data"))
    """Training tasks that dialogues are collected on."""
    samples: int = Field(default=6, ge=2, json_schema_extra=about("Data"))
    """Dialogues for each training task."""
    candidates: int = Field(default=16, ge=2, json_schema_extra=about("Selection"))
    """Replies sampled and ranked at each turn."""
    fraction: float = Field(default=0.15, gt=0, le=1, json_schema_extra=about("Selection"))
    """Share of the turns that are ranked."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Jail of the code that the agent writes."""


def _family(fields: Mapping[str, Any]) -> Family:
    """Return the family of the dataset; raise ValueError where it is not a generated one."""
    name = fields.get("tasks")
    if name not in FAMILIES:
        raise ValueError(f"give the turns and reply tokens of dialogues on {name!r}, or use {', '.join(FAMILIES)}")
    return FAMILIES[name]


class StudySizes(Sizes):
    """The settings that decide the outcome of a seed's steps. Each step depends only on those that it uses."""

    tasks: str = MICRO.name
    """The dataset."""
    agent: str = Field(default_factory=lambda fields: FAMILIES.get(fields.get("tasks", ""), MICRO).agent)
    """The model that everything starts from; where not given the packaged one that plays the dataset, or micro."""
    turns: int = Field(default_factory=lambda fields: _family(fields).turns, ge=1)
    """The agent's turns in a dialogue; the number that the dataset is made for where not given."""
    reply_tokens: int = Field(default_factory=lambda fields: _family(fields).reply_tokens, ge=1)
    """Tokens of a reply at most; enough for the dataset's answers where not given."""
    split: str = "test"
    """The split that actors are evaluated on."""
    eval_tasks: int = Field(default=500, ge=1)
    """Tasks of each evaluation."""
    best_tasks: int = Field(default=60, ge=1)
    """Validation tasks of the figures best of N."""
    best_samples: int = Field(default=32, ge=2)
    """Dialogues for each of them, of which one is chosen."""
    best_replies: int = Field(default=32, ge=2)
    """Replies at each turn, of which one is chosen and the dialogue goes on with it; at most so many."""
    credit_turns: int = Field(default=300, ge=1)
    """Turns of these dialogues at which credit is measured."""
    parts: tuple[int, ...] = (8, 2)
    """The learning curves of methods that do not learn online: also with an 8th and with half of the training tasks,
    and so of the generated tokens."""
    curve_tasks: int = Field(default=256, ge=1)
    """Validation tasks on which the actors of the learning curves are evaluated."""
    curve_steps: int = Field(default=8, ge=1)
    """Steps between two points of the learning curve of a method that learns online."""
    equal: Equal = "tokens"
    """What is the same for all methods. tokens: those that `sweet` lets the agent generate, dialogues and sampled
    replies; methods that learn from whole dialogues get so many more, and online ones end after the step that reaches
    them. dialogues: the offline dialogues, whose tokens are those of an online method."""
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where models are sampled and trained."""


class StudyConfig(StudySizes):
    seed: int = Field(default=0, ge=0)
    """The first seed."""
    seeds: int = Field(default=5, ge=1)
    """Number of consecutive seeds."""
    methods: MethodNames = tuple(METHODS)
    """Methods to compare."""
    figures: bool = True
    """Also measure learning curves over generated tokens, best of N, and credit by kind of turn."""
    jobs: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Seeds at the same time; the number of cores where not given."""

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)

    def sizes(self) -> StudySizes:
        return StudySizes(**{name: getattr(self, name) for name in StudySizes.model_fields})
