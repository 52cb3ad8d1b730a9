"""The settings of a study: its sizes, its methods, and all their hyperparameters.

A method (`methods.toml`) is a credit rule that the actor's training uses, and options. All actors start from the same
agent. Those that learn from step-level pairs learn from the same sampled replies, judged by the method's judge; those
that learn from whole dialogues get as many more of these as the replies have tokens; those that learn online (`sweet
train-online`) end when the agent has written as many. The learning rates, weights and epochs
(`sweet.training.hyperparameters`, `methods.toml`) were chosen on validation tasks, for each method with a number of
settings (`benchmarks/results/micro-tuning.json`). The ablations and controls differ from `sweet` only in what they are
named after.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from sweet.credit.registry import rule_class
from sweet.device import Device
from sweet.errors import InputError, UsageError, place_and_problem
from sweet.json_value import JsonValue
from sweet.plugins import CREDIT, plugins
from sweet.sandbox.program import TierChoice
from sweet.stages.base import OPERATIONAL, Seed, StageConfig, Table, about
from sweet.stages.options import RetrainConfig
from sweet.suggestions import did_you_mean
from sweet.tasks.desk.generator import DESK
from sweet.tasks.micro.family import FAMILIES, MICRO, Family
from sweet.tasks.orders.generator import ORDERS
from sweet.tasks.shops import Dataset
from sweet.toml_file import parse_toml, read_text
from sweet.training.hyperparameters import defaults

Options = dict[str, JsonValue]
"""Options of a stage, by the names of its configuration's fields."""

ORDER: Options = {"shuffle": "examples"}
"""Of the examples of every training on recorded data. The recorded results (`benchmarks/results`) were made with this
order, and the settings were chosen with it; the trainings' default is another one since (docs/training.md)."""

PAIRS: Options = {"pairs": 2, "strategy": "best-worst"}
"""Differs from the paper's 4 pairs of random halves: hardly five of sixteen replies to a micro task are useful, so half
of the upper half is as useless as the lower half."""
STEP: Options = {"tasks_per_step": 16, "group": 8}
"""The dialogues of a step of a method that learns online."""


def _usual(learner: str, *, compares: bool = True) -> Options:
    """Return the default hyperparameters of a small model (`sweet.training.hyperparameters`), and the order.

    Args:
        compares: whether it compares two examples, which takes a beta.
    """
    values = asdict(defaults(learner, large=False))
    if compares:
        return {"beta": 0.1, **values, **ORDER}
    return {**{name: values[name] for name in ("lr", "epochs", "batch")}, **ORDER}


class Method(Table):
    """How an actor is made. `sweet.study.study_steps` makes it a recipe of `sweet train`."""

    name: str
    group: str
    """Methods of one group stand together."""
    what: str
    """What it is, in a few words."""
    curve: bool = False
    """Whether it has a learning curve over generated tokens."""
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
    """Options of the ranking."""
    pair: Options = Field(default_factory=dict)
    """Options of the pairing."""
    actor: Options = Field(default_factory=dict)
    """Options of the actor's training, `sweet train-actor` or `sweet train-online`."""

    def settings(self) -> dict[str, JsonValue]:
        """Return the fields that decide the outcome, without the empty ones, and the package of another's rule."""
        fields: dict[str, JsonValue] = self.model_dump(mode="json", exclude={"name", "group", "what", "curve"})
        package = next((str(plugin) for plugin in plugins(CREDIT).get(self.learns, ())), "")
        return {name: value for name, value in {**fields, "package": package}.items() if value}

    @classmethod
    def of(cls, name: str, table: dict[str, Any]) -> Method:
        """Return the method of a table of `methods.toml`: its rule's usual settings, and what the table changes."""
        method = cls(name=name, **table)
        if method.learns == "nothing":
            return method
        rule = rule_class(method.learns)
        actor = STEP if method.online else _usual(method.learns, compares=rule.reads in ("pairs", "preferences"))
        critic: Options = {}
        if method.judge == "critic" or (rule.asks_critic and method.online):
            critic = _usual("regression" if method.critic.get("variant") == "regression" else "critic")
        pair = PAIRS if method.judge is not None and rule.reads == "pairs" else {}
        options = {"critic": critic | method.critic, "pair": pair | method.pair, "actor": actor | method.actor}
        return method.model_copy(update=options)


METHODS: dict[str, Method] = {
    name: Method.of(name, table)
    for name, table in tomllib.loads(files("sweet.study").joinpath("methods.toml").read_text(encoding="utf-8")).items()
}
"""All methods, in the order in which they are made and reported."""

CURVES = tuple(name for name, method in METHODS.items() if method.curve)
"""The methods that have a learning curve over generated tokens."""

CRITICS = {"critic": "sweet", "no_info": "no-info"}
"""The critics that are measured separately: the name in the results, and the method that has the critic."""

TURN_JUDGES = CRITICS | {"oracle": "oracle", "untrained": "untrained"}
"""The judges that choose the best of N replies at each turn: the name in the results, and the method that has the
judge."""

FILE = ".toml"
"""How the name of a file with methods ends."""


def methods_of(names: Iterable[str]) -> dict[str, Method]:
    """Return the methods of these names, and those of the files among them, which are like `methods.toml`.

    Raises:
        InputError: a file cannot be read.
        UsageError: its tables are no methods, or have names of others.
    """
    methods: dict[str, Method] = {name: METHODS[name] for name in names if not name.endswith(FILE)}
    for path in (Path(name) for name in names if name.endswith(FILE)):
        tables = parse_toml(read_text(path, "file of methods", regular=False), path)
        if not tables:
            raise InputError("The file has no method.", path=path, fix="a table for each, [NAME]")
        for name, table in tables.items():
            where = f"{path}, [{name}]"
            if name in METHODS or name in methods or not is_name(name):
                fix = "give it another name, of small letters, digits and dashes"
                raise UsageError(f"A method cannot be called {name!r} here.", where=where, fix=fix)
            try:
                methods[name] = Method.of(name, {"group": "others", "what": "", **table})
            except (TypeError, ValidationError) as error:
                what = "it is no table, or has a key name"
                if isinstance(error, ValidationError):
                    what = place_and_problem(error)
                raise UsageError(f"This is no method: {what}.", where=where) from error
            check_options(methods[name], where)
    return methods


def check_options(method: Method, where: str) -> None:
    """Raise UsageError for an option that the stages of a method do not have, or for its value."""
    from sweet.pipeline.recipe import checked  # only methods of files need it, and it imports every stage's options

    actor = "train-online" if method.online else "train-actor"
    checked({"train-critic": method.critic, "rank": method.rank, "pair": method.pair, actor: method.actor}, where)


def is_name(name: str) -> bool:
    """Return whether a method may have this name."""
    return re.fullmatch(r"[a-z0-9]{1,20}(-[a-z0-9]{1,20}){0,4}", name) is not None


def _split_names(value: Any) -> Any:
    """Split names at commas: `a,b` is the same list as `a` and `b`."""
    words: Iterable[Any] = [value] if isinstance(value, str) else value
    return tuple(part.strip() for word in words for part in (word.split(",") if isinstance(word, str) else [word]))


def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in the order of METHODS, then those of files; without any name all of METHODS. Raise ValueError
    for an unknown one."""
    for name in names:
        if name not in METHODS and not name.endswith(FILE):
            suggestion = did_you_mean(name, tuple(METHODS))
            raise ValueError(f"there is no method {name!r}, there are {', '.join(METHODS)}{suggestion}")
    return (*(name for name in METHODS if name in (names or METHODS)), *(name for name in names if name.endswith(FILE)))


MethodNames = Annotated[tuple[str, ...], BeforeValidator(_split_names), AfterValidator(_in_order)]


def _generated(name: str) -> str:
    """Return the name of a generated dataset that a packaged agent plays; raise ValueError for another one."""
    if name not in (played := [generated for generated, dataset in GENERATED.items() if dataset.agent]):
        raise ValueError(f"a study is of generated tasks: {', '.join(played)}{did_you_mean(name, played)}")
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


class StudyOptions(StageConfig):
    seeds: int = Field(default=5, ge=1, json_schema_extra=about("Study"))
    """Number of seeds of data, training and sampling, starting with --seed."""
    methods: MethodNames = Field(default=(), validate_default=True, json_schema_extra=about("Study"))
    """Methods to compare, separated by commas, also TOML files with methods of your own; default: all."""
    tries: int = Field(default=1, ge=1, json_schema_extra=about("Study"))
    """Settings that are tried for each method, its own first, on validation tasks and another seed; the best are
    compared."""
    figures: bool = Field(default=True, json_schema_extra=about("Study"))
    """Also make learning curves over generated tokens, best of N, and credit by kind of turn."""
    jobs: int | None = Field(default=None, ge=1, json_schema_extra=about("Study", OPERATIONAL))
    """Seeds that run at the same time; default: the number of cores."""


class DemoConfig(Sizes, RetrainConfig):
    main_options = ("train_tasks", "samples", "seed", "eval_tasks", "rounds")

    seed: Seed = Field(default=0, json_schema_extra=about("Data"))
    """Seed of sampling and training."""
    eval_tasks: int = Field(default=512, ge=1, json_schema_extra=about("Data"))
    """Unseen tasks of the evaluation before and after."""
    rounds: int = Field(default=1, ge=1, json_schema_extra=about("Method"))
    """Actors trained one after the other: the second also learns from the first one's dialogues, and so on."""


class BenchConfig(StudyOptions, Sizes):
    """The options of `sweet bench`, a part of those of a study (`StudyConfig`)."""

    main_options = ("tasks", "methods", "seeds", "submit")

    tasks: StudyTasks = Field(default=MICRO.name, json_schema_extra=about("Data"))
    """The generated dataset: micro, micro-long, micro-parts or desk."""
    seed: Seed = Field(default=0, json_schema_extra=about("Study"))
    """The first seed."""
    eval_tasks: int = Field(default=500, ge=1, json_schema_extra=about("Data"))
    """Tasks of each evaluation."""
    submit: Path | None = Field(default=None, json_schema_extra=about("Study"))
    """Check a `study.json` from elsewhere, run one seed of its methods again, and add them to the folder's results."""

    def study(self) -> StudyConfig:
        return StudyConfig(**{name: getattr(self, name) for name in self.model_fields_set - {"submit"}})


GENERATED: Mapping[str, Family | Dataset] = {**FAMILIES, **ORDERS, **DESK}
"""All generated datasets. No packaged agent plays those of `orders`, so that a study of them names one."""


def _dataset(fields: Mapping[str, Any]) -> Family | Dataset:
    """Return the generated dataset; raise ValueError where it is not one."""
    name = fields.get("tasks", "")
    if name not in GENERATED:
        raise ValueError(f"give the turns and reply tokens of dialogues on {name!r}, or use {', '.join(GENERATED)}")
    return GENERATED[name]


def _agent(fields: Mapping[str, Any]) -> str:
    """Return the packaged agent that plays a dataset, or micro; raise ValueError where there is none."""
    dataset = GENERATED.get(fields.get("tasks", ""), MICRO)
    if dataset.agent is None:
        raise ValueError(f"no packaged agent plays {dataset.name}: give the agent")
    return dataset.agent


class StudySizes(Sizes):
    """The settings that decide the outcome of a seed's steps. Each step depends only on those that it uses."""

    tasks: str = MICRO.name
    """The dataset."""
    agent: str = Field(default_factory=_agent)
    """The model that everything starts from; where not given the packaged one that plays the dataset, or micro."""
    turns: int = Field(default_factory=lambda fields: _dataset(fields).turns, ge=1)
    """The agent's turns in a dialogue; the number that the dataset is made for where not given."""
    reply_tokens: int = Field(default_factory=lambda fields: _dataset(fields).reply_tokens, ge=1)
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
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where models are sampled and trained."""

    @property
    def kind(self) -> str:
        """The kind of the tasks; of a file, code."""
        return GENERATED.get(self.tasks, MICRO).kind

    def divisors(self, method: Method) -> tuple[int, ...]:
        """Return the parts of the training tasks that a method's learning curve needs; one that learns online has its
        points in one training on all tasks."""
        return (1,) if method.online else (*self.parts, 1)

    def part(self, divisor: int) -> Self:
        """Return the sizes with a part of the training tasks."""
        return self.model_copy(update={"train_tasks": max(1, self.train_tasks // divisor)})


class StudyConfig(StudyOptions, StudySizes):
    seed: Seed = 0
    """The first seed."""

    def sizes(self) -> StudySizes:
        return StudySizes(**{name: getattr(self, name) for name in StudySizes.model_fields})
