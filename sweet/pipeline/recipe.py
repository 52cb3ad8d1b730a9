"""A recipe: the options of all stages of `sweet train`, one TOML file.

    [train]       the options of the command (LoopConfig)
    [rollout]     how every dialogue is played
    [evaluation]  options of rollout that differ where the agent is evaluated
    [eval]  [label]  [train-critic]  [rank]  [pair]  [train-actor]  [train-online]
    [train-actor.RULE]  [train-online.RULE]  options where the actor learns by this credit rule, over those of the table
    [rank.JUDGE]  options where this judge ranks: a critic's variant (advantage, no-info, regression), oracle, llm, …
    [servers.sim]  [servers.agent]  [servers.judge]  the servers that sweet train starts and ends
    [prices.agent]  [prices.sim]  [prices.judge]  the price of a million tokens: prompt, completion

Keys above the tables apply to every stage that has such an option, as in the file of `--config`. What the loop itself
decides (`MANAGED`) cannot be set: which artifacts a stage reads, and what `[train]` says.

A call merges, each overriding the one before: a packaged recipe, a file or the run's own recipe; `--set`, which counts
for every rule and judge; the options of the command line. The result is written to RUN/recipe.toml with every option,
the defaults as comments.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from sweet.credit.names import rule_names
from sweet.credit.registry import credit_rule
from sweet.errors import UsageError, in_words, not_value
from sweet.files import replaced
from sweet.hints import option_key
from sweet.installation import VERSION
from sweet.judges.options import JudgeName
from sweet.pipeline.algorithm import ONLINE, Algorithm, algorithm_of
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.tables import ServersTable
from sweet.redaction import redacted
from sweet.runs.run import Run
from sweet.runs.stages import RECIPE, STAGES
from sweet.runs.trust import check, remember
from sweet.stages.base import StageConfig
from sweet.stages.prices import TABLE, Prices, read_prices
from sweet.stages.resuming import for_run
from sweet.suggestions import did_you_mean
from sweet.tasks.packaged import PACKAGED
from sweet.toml_file import parse_options, read_text, spelled, unknown_name

TRAIN = "train"
"""The table of the command's own options."""

STAGE_TABLES = ("rollout", "eval", "label", "train-critic", "rank", "pair", "train-actor", "train-online")
_CONFIGS = {stage.name: stage.config for stage in STAGES if stage.name in STAGE_TABLES}
TABLES: dict[str, type[StageConfig]] = {
    TRAIN: LoopConfig,
    "rollout": _CONFIGS["rollout"],
    "evaluation": _CONFIGS["rollout"],
    **{name: _CONFIGS[name] for name in STAGE_TABLES[1:]},
}
"""The configuration of each table, in the order of a file."""

BY_CHOICE = ("rank", "train-actor", ONLINE)
"""The tables that can have tables in them, of which the one counts that another option chooses (`Recipe.chosen`)."""

EXTRAS: dict[str, type[BaseModel]] = {"servers": ServersTable, TABLE: Prices}
"""The tables that are of no stage."""

_ALWAYS = {"verify", "from_", "resume", "trust", "prices", "max_cost"}
_PLAYED = _ALWAYS | {
    *("task", "tasks", "split", "holdout", "holdout_validation", "agent", "agent_url", "harness"),
    *("harness_jail", "sim", "sim_url"),
    *("num_tasks", "samples", "new", "critic"),
}
MANAGED: dict[str, set[str]] = {
    TRAIN: {"recipe", "set_", "redo", "trust", "prices"},
    "rollout": _PLAYED,
    "evaluation": _PLAYED,
    "eval": _ALWAYS | {"compare", "flips", "allow_different"},
    "label": _ALWAYS,
    "train-critic": _ALWAYS,
    "rank": _ALWAYS | {"rollouts", "replies", "agent_url", "sim", "sim_url"},
    "pair": _ALWAYS,
    "train-actor": _ALWAYS,
    "train-online": _PLAYED | {"algorithm"},
}
"""The options of each table that the loop decides."""

_INTRODUCTION = """\
# The recipe of this run, resolved by sweet {version}: every option of every stage, defaults as comments.
# sweet train {run} continues by it. Changed settings are refused with what they would repeat, unless --redo is given.
"""


@dataclass(frozen=True)
class Recipe:
    """A checked recipe.

    Attributes:
        train: the options of the loop.
        options: of each stage's table, those that were given, by field.
        by_choice: of a table of `BY_CHOICE`, those that were given for a judge or a credit rule, by its name and field.
        servers, prices: the tables of these names.
    """

    train: LoopConfig
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_choice: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    servers: ServersTable = field(default_factory=ServersTable)
    prices: Prices | None = None

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, with the judge of its ranking. Raises UsageError; see `algorithm_of`."""
        return algorithm_of(self.train, self.judge)

    @property
    def judge(self) -> str:
        """The judge of the ranking, if there is one."""
        return str(self.options.get("rank", {}).get("judge", "critic"))

    def of(self, *tables: str) -> dict[str, Any]:
        """Return the options of a table, or of several, of which a later one overrides."""
        options: dict[str, Any] = {}
        for table in tables:
            options |= {**self.options.get(table, {}), **self.by_choice.get(table, {}).get(self.chosen(table), {})}
        return options

    def chosen(self, table: str) -> str:
        """Return the name of the table in a table of `BY_CHOICE` that counts: the judge, or the actor's credit rule."""
        options = self.options.get(table, {})
        if table != "rank":
            return str(options.get("algorithm", self.train.algorithm))
        variant = str(self.options.get("train-critic", {}).get("variant", "advantage"))
        return variant if self.judge == "critic" else self.judge

    def settings(self) -> list[Mapping[str, Any]]:
        """Return all that was given, in tables."""
        train = self.train.model_dump(mode="json", exclude_unset=True)
        return [train, self.options, self.by_choice, self.servers.model_dump()]

    def outcome(self) -> dict[str, Any]:
        """Return the settings that decide the result, as `table.option`; those of the stages that the algorithm has."""
        algorithm = self.algorithm
        tables = [table for table in TABLES if table != TRAIN and algorithm.has_table(table)]
        configs = {TRAIN: self.train} | {table: _config(table, self.of(table)) for table in tables}
        return {
            f"{table}.{option_key(name)}": value
            for table, config in configs.items()
            for name, value in config.outcome_settings().items()
            if name not in MANAGED[table]
        }

    def text(self, run: Path) -> str:
        """Return the file's content: every option, the defaults as comments."""
        lines = [_INTRODUCTION.format(version=VERSION, run=" ".join(str(run).split()))]
        for table, config in TABLES.items():
            train = self.train.model_dump(mode="json", exclude_unset=True)
            settings = train if table == TRAIN else self.options.get(table, {})
            lines.append(f"[{table}]")
            for name, default in config.default_settings().items():
                if name in MANAGED[table]:
                    continue
                if name in settings and settings[name] is not None:
                    lines.append(_line(name, settings[name]))
                elif table == "evaluation":
                    continue  # what is not given is as in [rollout]
                else:
                    lines.append(f"# {_line(name, default)}" if default is not None else f"# {option_key(name)} =")
            lines.append("")
            for choice, options in self.by_choice.get(table, {}).items():
                lines += [f"[{table}.{choice}]", *(_line(name, value) for name, value in options.items()), ""]
        for name, extra in (("servers", self.servers), (TABLE, self.prices)):
            if extra is not None and extra.model_fields_set:
                lines.append(tomli_w.dumps({name: extra.model_dump(mode="json", exclude_unset=True)}))
        return "\n".join(lines)


def _line(name: str, value: Any) -> str:
    plain = str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
    return tomli_w.dumps({option_key(name): plain}).strip()


def packaged() -> dict[str, Any]:
    """Return the files of the packaged recipes, by name."""
    folder = files("sweet.pipeline") / "recipes"
    return {item.name.removesuffix(".toml"): item for item in folder.iterdir() if item.name.endswith(".toml")}


def keys() -> Iterator[str]:
    """Yield the options of the stages' tables, as `--set` begins with them: `rank.fraction=`."""
    for table, config in TABLES.items():
        if table != TRAIN:
            yield from (f"{table}.{option_key(name)}=" for name in config.model_fields if name not in MANAGED[table])


def resolve(config: LoopConfig, run: Path | None) -> Recipe:
    """Return the recipe of a call.

    Args:
        config: the options that were given; of the others, those of the recipe count.
        run: the run directory, which may have a recipe; None where there is none yet.

    Raises:
        UsageError: an unknown table or option, or an invalid value, also of the rule; names file and key. Or the
            recipe, no packaged one, would start something, and the user did not write it here (`sweet.runs.trust`);
            or it is for another kind of task than the run.
        InputError: the file, or that of the prices, cannot be read.
    """
    options = _given(config)
    document, source = _document(config, options, run)
    recorded = recipe = checked(document, str(source))
    assigned: dict[str, Any] = {}
    listed: set[str] = set()
    for assignment in config.set_:
        _assign(assigned, assignment, set(listed))
        _assign(document, assignment, listed)
        recipe = checked(document, f"--set {assignment}")
    train = LoopConfig.model_validate(recipe.train.model_dump(exclude_unset=True) | options | {"redo": config.redo})
    train = train if run is None else for_run(train, Run(run))
    prices = recipe.prices if config.prices is None else read_prices(config.prices)
    recipe = replace(recipe, train=train, prices=prices)
    if isinstance(source, Path):
        whose, is_file = "The settings of the recipe", config.recipe is not None
        settings = recorded.settings(), recipe.settings(), [options, assigned]
        check(*settings, trusted=config.trust, what=whose, where=source, is_file=is_file)
    recipe.algorithm.check_given(options, config.set_)
    table = ONLINE if recipe.algorithm.has_table(ONLINE) else "train-actor"
    key = f"{'--set' if 'rule-option' in assigned.get(table, {}) else source}, key {table}.rule-option = "
    credit_rule(recipe.chosen(table), recipe.of(table).get("rule_option", []), key)
    return recipe


def base_of(config: LoopConfig, run: Path | None) -> tuple[Recipe, str]:
    """Return the recipe that the options of a call override, and where it is; see `resolve`."""
    document, source = _document(config, _given(config), run)
    return checked(document, str(source)), str(source)


def _given(config: LoopConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.model_fields_set - MANAGED[TRAIN]}


def read_run(run: Path) -> Recipe | None:
    """Return the recipe of a run; None where it has none."""
    path = run / RECIPE
    return checked(_read(path), str(path)) if path.exists() else None


def write_run(recipe: Recipe, run: Path) -> None:
    """Write the recipe of a run, which counts as the user's from then on; passwords in addresses are left out."""
    remember(*recipe.settings())
    with replaced(run / RECIPE) as file:
        file.write(redacted(recipe.text(run)).encode())


def _document(config: LoopConfig, options: Mapping[str, Any], run: Path | None) -> tuple[dict[str, Any], str | Path]:
    """Return the recipe that a call names, of its run, or the packaged one that suits the agent; and where it is, a
    path unless it is packaged."""
    if run is not None and config.recipe is None and (run / RECIPE).exists():
        return _read(run / RECIPE), run / RECIPE
    packaged_agent = options.get("agent", "micro") in PACKAGED
    name = config.recipe or ("micro" if packaged_agent and config.task == "code" else "paper")
    recipes = packaged()
    if name in recipes:
        return tomllib.loads(recipes[name].read_text(encoding="utf-8")), f"recipe {name}"
    path = Path(name)
    if not path.exists() and path.suffix != ".toml":
        raise UsageError(
            f"There is no recipe {name}.{did_you_mean(name, recipes)}",
            where="--recipe",
            fix=f"a TOML file, or one of {', '.join(sorted(recipes))}",
        )
    return _read(path), path


def _read(path: Path) -> dict[str, Any]:
    return parse_options(read_text(path, "recipe"), path)


def checked(document: Mapping[str, Any], source: str) -> Recipe:
    """Return the recipe of a document; raise UsageError for an unknown table or option, or an invalid value.

    Args:
        source: the file, for errors.
    """
    shared = {key: value for key, value in document.items() if not isinstance(value, dict)}
    options: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for key, value in shared.items():
        fields = {table: _field(config, key) for table, config in TABLES.items() if table != "evaluation"}
        takers = {table: name for table, name in fields.items() if name is not None and name not in MANAGED[table]}
        if key == "agent":  # there it is that of [train]
            takers.pop("rank", None)
        if not takers:
            every = {option_key(name) for config in TABLES.values() for name in config.model_fields}
            raise unknown_name("recipe", key, every, source, others=[*TABLES, *EXTRAS])
        for table, name in takers.items():
            options[table][name] = value
    for table, values in document.items():
        if isinstance(values, dict) and table not in EXTRAS:
            if table not in TABLES:
                raise unknown_name("recipe", table, [*TABLES, *EXTRAS], source, "table ")
            flat = {key: value for key, value in values.items() if not (table in BY_CHOICE and isinstance(value, dict))}
            options[table] |= {_option(table, key, source): value for key, value in flat.items()}
    configs = {table: _config(table, values, source) for table, values in options.items()}
    train = configs.pop(TRAIN)
    assert isinstance(train, LoopConfig)
    settings = {table: config.model_dump(exclude_unset=True) for table, config in configs.items()}
    by_choice = {table: tables for table in BY_CHOICE if (tables := _by_choice(table, document.get(table, {}), source))}
    extras: dict[str, Any] = {name: _config(name, document[name], source) for name in EXTRAS if name in document}
    return replace(Recipe(train, settings, by_choice), **extras)


def _by_choice(table: str, values: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """Return the options of the tables in a table, by judge or credit rule and by field."""
    judges = {*get_args(JudgeName), *get_args(TABLES["train-critic"].model_fields["variant"].annotation)} - {"critic"}
    choices, choice = (sorted(judges), "judge") if table == "rank" else (rule_names(), "algorithm")
    by_choice: dict[str, dict[str, Any]] = {}
    for name, options in values.items():
        if isinstance(options, dict):
            if name not in choices:
                names = [f"{table}.{other}" for other in choices]
                keys = [f"{table}.{option_key(field_)}" for field_ in TABLES[table].model_fields]
                raise unknown_name("recipe", f"{table}.{name}", names, source, "table ", others=keys)
            fields = {_option(f"{table}.{name}", key, source): value for key, value in options.items()}
            if choice in fields:
                what = f"The table [{table}.{name}] counts where {name} is chosen, and cannot choose another."
                raise UsageError(what, where=f"{source}, key {table}.{name}.{choice}", fix=f"set it in [{table}]")
            by_choice[name] = _config(f"{table}.{name}", fields, source).model_dump(exclude_unset=True)
    return by_choice


def _assign(document: dict[str, Any], assignment: str, listed: set[str]) -> None:
    """Put one `--set TABLE.OPTION=VALUE` into a document.

    Args:
        listed: options that are lists and were set before it by the same call, to which a further value is added.
    """
    name, equals, text = assignment.partition("=")
    table, *path = name.strip().split(".")
    if not (equals and path):
        raise UsageError("This is not STAGE.OPTION=VALUE.", where=f"--set {assignment}", fix="--set rank.fraction=0.2")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, too many digits or brackets: the option says what it takes
        value = text
    inner = document
    for part in (table, *path[:-1]):
        inner[part] = dict(inner[part]) if isinstance(inner.get(part), dict) else {}
        inner = inner[part]
    option = _field(TABLES[table], path[-1]) if table in TABLES else None
    last = option_key(option) if option else path[-1]
    if option and isinstance(TABLES[table].default_settings()[option], list) and not isinstance(value, list):
        name = ".".join((table, *path[:-1], last))
        value = [*(inner.get(last, []) if name in listed else []), value]
        listed.add(name)
    for level in (inner, *(child for child in inner.values() if table in BY_CHOICE and isinstance(child, dict))):
        for key in [key for key in level if spelled(key) == spelled(last)]:
            del level[key]
    inner[last] = value


def _field(config: type[StageConfig], key: str) -> str | None:
    """Return the field of an option's key; None if there is none."""
    return next((name for name in config.model_fields if option_key(name) == spelled(key)), None)


def _option(table: str, key: str, source: str) -> str:
    """Return the field of a key of a table, which may be one in a table of `BY_CHOICE`: `rank.lookahead`."""
    stage = table.partition(".")[0]
    config = TABLES[stage]
    name = _field(config, key)
    if name is None:
        names = [f"{table}.{option_key(field_)}" for field_ in config.model_fields]
        raise unknown_name("recipe", f"{table}.{key}", names, source)
    if name in MANAGED[stage]:
        by_train = table != TRAIN and _field(LoopConfig, key) not in (None, *MANAGED[TRAIN])
        fix = f"set {option_key(name)} in [{TRAIN}]" if by_train else "omit it"
        what = f"{table}.{option_key(name)} is decided by sweet train and cannot be in a recipe."
        raise UsageError(what, where=f"{source}, key {table}.{key}", fix=fix)
    return name


def _config(table: str, options: Any, source: str = RECIPE) -> Any:
    """Return the configuration of a table: that of a stage, or one in it, or one of `EXTRAS`.

    Raises:
        UsageError: a value is invalid.
    """
    stage = table.partition(".")[0]
    fix = f"sweet {'rollout' if stage == 'evaluation' else stage} --help" if stage in TABLES else None
    try:
        return {**TABLES, **EXTRAS}[stage].model_validate(dict(options) if isinstance(options, Mapping) else options)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join([table, *(option_key(str(part)) for part in problem["loc"])])
        what = f"{key}: {in_words(problem)}{not_value(problem['input'])}."
        raise UsageError(what, where=f"{source}, key {key}", fix=fix) from error
