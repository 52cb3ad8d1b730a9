"""What tokens cost: prices that the user gives, of which none are known here.

A file of prices is TOML with the tables `[agent]` and `[sim]`, which are `[prices.agent]` and `[prices.sim]` in a
recipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import InputError
from sweet.regular import read_regular
from sweet.toml_file import parse_toml, read_text

LARGEST = 1 << 16
"""Bytes of a file of prices at most."""


class TokenUsage(Protocol):
    """Tokens that both sides have read and written."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def human_prompt_tokens(self) -> int: ...
    @property
    def human_completion_tokens(self) -> int: ...


class Price(BaseModel):
    """The price of a million tokens, in any currency."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    prompt: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Of a million tokens that are read."""
    completion: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Of a million tokens that are written."""


class Prices(BaseModel):
    """The prices of both sides; a side without one is free."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: Price = Price()
    sim: Price = Price()

    def cost(self, usage: TokenUsage) -> float:
        """Return the price of tokens."""
        agent = usage.prompt_tokens * self.agent.prompt + usage.completion_tokens * self.agent.completion
        human = usage.human_prompt_tokens * self.sim.prompt + usage.human_completion_tokens * self.sim.completion
        return round((agent + human) / 1e6, 6)


def read_prices(path: Path) -> Prices:
    """Return the prices of a file.

    Raises:
        InputError: the file cannot be read, or a price in it is invalid or missing; names the key.
    """
    found = parse_toml(read_text(path, "file of prices", lambda: read_regular(path, LARGEST)), path)
    form = "[agent] and [sim], each with prompt = PRICE and completion = PRICE of a million tokens"
    try:
        prices = Prices.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"The price {key} is invalid: {first['msg']}.", path=path, fix=form) from error
    if prices == Prices():
        raise InputError("The file has no price.", path=path, fix=form)
    return prices
