"""What tokens cost: the tables `[prices.agent]`, `[prices.sim]` of a recipe."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sweet.pipeline.metrics import Usage


class Price(BaseModel):
    """The price of a million tokens, in any currency."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    prompt: float = Field(default=0.0, ge=0)
    """Of a million tokens that are read."""
    completion: float = Field(default=0.0, ge=0)
    """Of a million tokens that are written."""


class Prices(BaseModel):
    """The prices of both sides; a side without one is free."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: Price = Price()
    sim: Price = Price()

    def cost(self, usage: Usage) -> float:
        """Return the price of a round's tokens."""
        agent = usage.prompt_tokens * self.agent.prompt + usage.completion_tokens * self.agent.completion
        human = usage.human_prompt_tokens * self.sim.prompt + usage.human_completion_tokens * self.sim.completion
        return round((agent + human) / 1e6, 6)
