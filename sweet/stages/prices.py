"""What tokens cost: prices that the user gives, of which none are known here, and the limit of a run's cost.

A file of prices is TOML with a table for each role: `[agent]`, `[sim]`, `[judge]`, and of `sweet data describe` and
`synthesise` `[writer]` and `[checker]`, and `[training]` of what a service passes over to learn and to judge; or a
recipe, in which these are tables of the table `[prices]`. The cost of a run is that of the tokens of all its attempts
(`sweet.runs.tokens`) by the prices of now. At the limit a stage begins nothing more, lets what is under way end, and
raises `Interrupted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import InputError, Interrupted, SweetError, UsageError, place_and_problem
from sweet.runs.manifest import Manifest
from sweet.runs.run import Run
from sweet.runs.tokens import TokenMeter, Tokens, TokensByRole, tokens_of_run, total
from sweet.stages.base import OPERATIONAL, StageConfig, Table, about
from sweet.toml_file import parse_toml, read_text
from sweet.units import price

TABLE = "prices"
"""The table of a recipe."""


class PricedConfig(StageConfig):
    """The options of a stage whose models cost something."""

    prices: Path | None = Field(default=None, json_schema_extra=about("Servers", OPERATIONAL))
    """TOML file with the prices of a million tokens: a table for each role, [agent], [sim] and [judge] (of data
    describe and synthesise [writer] and [checker]), with prompt and completion, and [training] with prompt, of what a
    service passes over. The result then has the cost, and sweet eval that of a solved task."""
    max_cost: float | None = Field(default=None, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """With --prices: begin nothing more once the tokens, those of earlier calls and of the run's other stages included,
    cost so much: dialogues end at their next turn, a service's training at its next step, and the stage as by Ctrl-C.
    Where a server reports no usage, tokens are estimated."""


class Price(Table):
    """The price of a million tokens, in any currency."""

    model_config = ConfigDict(strict=True)

    prompt: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Of a million tokens that are read."""
    completion: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Of a million tokens that are written."""


class Prices(Table):
    """The prices by the roles of models; a role without one is free."""

    model_config = ConfigDict(strict=True)

    agent: Price = Price()
    sim: Price = Price()
    judge: Price = Price()
    writer: Price = Price()
    checker: Price = Price()
    training: Price = Price()

    def cost(self, tokens: TokensByRole) -> float:
        """Return the price of tokens."""
        prices: dict[str, Price] = {name: getattr(self, name) for name in type(self).model_fields}
        parts = [
            tokens[role].prompt * price.prompt + tokens[role].completion * price.completion
            for role, price in prices.items()
            if role in tokens
        ]
        return round(sum(parts) / 1e6, 6)


def read_prices(path: Path) -> Prices:
    """Return the prices of a file.

    Raises:
        InputError: the file cannot be read, or a price in it is invalid or missing; names the key.
    """
    table = parse_toml(read_text(path, "file of prices"), path)
    if isinstance(table.get(TABLE), Mapping):
        table = table[TABLE]
    form = "[agent], [sim] and [judge], each with prompt = PRICE and completion = PRICE of a million tokens"
    try:
        prices = Prices.model_validate(table)
    except ValidationError as error:
        what = place_and_problem(error)
        raise InputError(f"The prices are invalid: {what}.", path=path, fix=form) from error
    if prices == Prices():
        raise InputError("The file has no price.", path=path, fix=form)
    return prices


def given_prices(config: PricedConfig) -> Prices | None:
    """Return the prices that the options of a stage name; None where they name none.

    Raises:
        UsageError: there is a limit of the cost, and no price.
        InputError: the file of prices is invalid.
    """
    if config.prices is None and config.max_cost is not None:
        raise no_prices()
    return None if config.prices is None else read_prices(config.prices)


def no_prices() -> UsageError:
    """Return the error of a limit without prices."""
    what = "A limit of the cost needs the prices of tokens."
    return UsageError(what, where="--max-cost", fix="--prices FILE.toml")


class Spending(BaseModel):
    """What a run has spent."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    tokens: dict[str, Tokens]
    """That models have read and written in all attempts, by their role."""
    cost: float | None = None
    """Of these tokens, by the prices that were given last; None without prices."""
    max_cost: float | None = None
    """The limit that was given with these prices."""

    @property
    def text(self) -> str:
        """The tokens and their cost, for people; empty where there are none. It may contain text from files."""
        if not self.tokens:
            return ""
        counts = (
            f"{role} {usage.prompt:,} read, {usage.completion:,} written" for role, usage in sorted(self.tokens.items())
        )
        limit = "" if self.max_cost is None else f" (limit {self.max_cost:g})"
        cost = [] if self.cost is None else [f"cost {price(self.cost)}{limit}"]
        return "; ".join([*counts, *cost])


def spending(run: Run, manifest: Manifest) -> Spending:
    """Return what a run has spent, by the prices that the newest attempt with any names, if they can still be read.

    Raises:
        InputError: the recorded tokens of an attempt are invalid.
    """
    tokens = tokens_of_run(run.path, manifest)
    values = ((attempt.config.get(name) for name in ("prices", "max_cost")) for attempt in reversed(manifest.attempts))
    for path, most in values:
        if isinstance(path, str):
            with suppress(SweetError, OSError):
                cost = read_prices(Path(path)).cost(tokens)
                return Spending(tokens=tokens, cost=cost, max_cost=most if isinstance(most, int | float) else None)
            break
    return Spending(tokens=tokens)


@dataclass(frozen=True)
class Budget:
    """What some work has cost, and may cost.

    Attributes:
        prices: None where the user gave none: the cost is not known then, and has no limit.
        meter: counts the tokens.
        most: at which nothing more is begun; None is no limit.
        before: tokens that the meter does not have, such as those of a run's other attempts.
    """

    prices: Prices | None = None
    meter: TokenMeter | None = None
    most: float | None = None
    before: TokensByRole = field(default_factory=dict)

    def spent(self) -> float | None:
        """Return what it has cost so far; None without prices."""
        if self.prices is None or self.meter is None:
            return None
        return self.prices.cost(total((self.before, self.meter.counts)))

    def is_spent(self) -> bool:
        """Return whether nothing more is to be begun."""
        return self.most is not None and (spent := self.spent()) is not None and spent >= self.most

    def shown(self) -> dict[str, float]:
        """Return what a progress bar shows of it."""
        spent = self.spent()
        return {} if spent is None else {"cost": round(spent, 4)}

    def reached(self) -> str:
        """Return the sentence that says that the limit is reached."""
        return f"The cost is {self.spent():.4g}, and the limit is {self.most:g}."

    def stopped(self, done: str) -> Interrupted:
        """Return the error of a stage that stops at the limit.

        Args:
            done: what is done and what is missing.
        """
        return Interrupted(f"Stopped. {self.reached()} {done}", needs="--max-cost MORE")
