"""The loss of a training: four components, and what each example contributes to them.

    preference       -log sigma(beta * (score of the chosen side - score of the rejected side)), of examples with two
                     sides (`sweet.learn.objectives.preference_loss`); weight `Example.preference`
    likelihood       mean negative log-likelihood per token of the chosen side, or their sum; weight
                     `Example.likelihood`
    policy-gradient  tokens of the chosen side, weighted by advantages (`TokenTerms.advantages`)
    distil           tokens of the chosen side, drawn to a teacher's distribution (`TokenTerms.teacher`, `top_ids`)

An example has any of them. In a step each component is divided by its own count, so that no component dilutes another:
the first two by the number of examples that have it, the other two by the number of tokens. A training knows only
these components; which examples there are and how they are weighted is decided by a credit rule (`sweet.credit`). This
module is importable without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Literal

Normalize = Literal["turn", "trajectory", "none"]
"""How a dialogue's log-ratios are averaged: per turn (3), over all its tokens (published code), or not at all."""

Target = Literal["preference", "dialogue", "binary", "real"]
"""What a regression head's scores learn: to replace A in equation (2); preferences between whole dialogues, with one
score each (published code); the log-odds at each turn that the dialogue solves its task; or the dialogue's reward."""

Average = Literal["token", "dialogue"]
"""What a policy gradient is averaged over: the tokens of the step, or first the tokens of each dialogue."""


@dataclass(frozen=True)
class PolicyGradient:
    """The clipped policy gradient (PPO, arXiv 1707.06347, equation 7) with the recorded probabilities mu of the model
    that sampled: -min(r A, clip(r, 1 - low, 1 + high) A) for each token, r = pi/mu.

    Attributes:
        low, high: the clip range; a larger `high` is clip-higher (DAPO, arXiv 2503.14476, section 3.1).
        bound: tokens whose ratio is above it or below its inverse contribute nothing, and are counted as `masked`.
            Trainer and sampler differ by their kernels and precision, and such a token was practically not sampled by
            the policy that is trained.
        average: see `Average`.
        by_turn: one ratio for all tokens of a turn, the product of theirs, as of one action (arXiv 2512.17008).
    """

    low: float = 0.2
    high: float = 0.2
    bound: float = 8.0
    average: Average = "token"
    by_turn: bool = False


@dataclass(frozen=True)
class Distillation:
    """The reverse Kullback-Leibler divergence KL(pi || teacher) at the sampled tokens.

    Where the teacher's most likely tokens are known (`TokenTerms.top_ids`), it is computed over these and the remaining
    mass as one further outcome. Otherwise its gradient is estimated from the sampled token: the weight of
    grad log pi(a) is log teacher(a) - log pi(a), without a gradient, times the ratio pi/mu, at most `bound`.

    Attributes:
        weight: of the component.
        bound: the largest ratio.
    """

    weight: float = 1.0
    bound: float = 2.0


@dataclass(frozen=True)
class TokenTerms:
    """What the token components need of one sequence: an entry for each supervised id, span after span.

    Attributes:
        sampled: log-probability of the id under the model that sampled it, at temperature 1.
        advantages: weights of the policy gradient; empty for none.
        teacher: log-probability of the id under the teacher; empty for none.
        top_ids, top_logprobs: the teacher's k most likely ids at that position and their log-probabilities; empty where
            the estimate from the sampled id is wanted.
        goals: what a value function learns of the state before the id, NaN for nothing; empty for none.
    """

    sampled: tuple[float, ...]
    advantages: tuple[float, ...] = ()
    teacher: tuple[float, ...] = ()
    top_ids: tuple[tuple[int, ...], ...] = ()
    top_logprobs: tuple[tuple[float, ...], ...] = ()
    goals: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("advantages", "teacher", "top_ids", "top_logprobs", "goals"):
            size = len(getattr(self, name))
            if size not in (0, len(self.sampled)):
                raise ValueError(f"{name} has {size} entries for {len(self.sampled)} tokens")

    @property
    def distils(self) -> bool:
        return bool(self.teacher or self.top_ids)


@dataclass(frozen=True)
class Example:
    """One item of a batch: a preference, or a chosen side alone. Sides are indices into the pool.

    Attributes:
        name: for error messages.
        group: examples of the same group share prefixes; the loop can keep them together.
        goals: the outcomes that a regression head learns, one for each side, the chosen side first.
        preference: weight of the comparison of both sides.
        likelihood: weight of the likelihood of the chosen side, besides `Objective.nll`.
        terms: of the chosen side's sequences, one for each; empty without weighted tokens.
    """

    name: str
    chosen: tuple[int, ...]
    rejected: tuple[int, ...] = ()
    group: str = field(default="", kw_only=True)
    goals: tuple[float, ...] = field(default=(), kw_only=True)
    preference: float = field(default=1.0, kw_only=True)
    likelihood: float = field(default=1.0, kw_only=True)
    terms: tuple[TokenTerms, ...] = field(default=(), kw_only=True)

    @property
    def sides(self) -> tuple[int, ...]:
        return self.chosen + self.rejected


@dataclass(frozen=True)
class Objective:
    """The weights and settings of the components.

    Attributes:
        beta: weight of the log-ratios; None for no preference loss (rejection fine-tuning).
        nll: weight of the negative log-likelihood of the chosen side.
        sum_nll: the likelihood is summed over the tokens of a side, not averaged.
        normalize: how log-ratios are combined into a side's score (`sweet.learn.objectives.side_scores`).
        whole_nll: compute the NLL over every token of the chosen side, including system and user (protocol `upstream`).
        target: what the model's regression head learns instead of log-ratios; None for a model without one.
        policy: settings of the policy gradient; None for none.
        distil: settings of the distillation; None for none.
        values: the model's head learns the goals of single states, as a value function: half of the squared distance.
        smoothing: probability that a preference is the wrong way round (`sweet.learn.objectives.preference_loss`).
    """

    beta: float | None
    nll: float
    normalize: Normalize = "turn"
    whole_nll: bool = False
    target: Target | None = None
    policy: PolicyGradient | None = None
    distil: Distillation | None = None
    sum_nll: bool = False
    values: bool = False
    smoothing: float = 0.0

    @property
    def compares(self) -> bool:
        """Whether the loss compares chosen with rejected."""
        return self.beta is not None

    @property
    def needs_reference(self) -> bool:
        return self.compares and self.target is None

    @property
    def needs_tokens(self) -> bool:
        """Whether the loss needs log-probabilities of tokens."""
        return self.target is None or self.nll > 0

    @property
    def weights_tokens(self) -> bool:
        """Whether a component weights single tokens."""
        return self.policy is not None or self.distil is not None or self.values


@dataclass(frozen=True)
class Counts:
    """The counts by which the components of a step are divided.

    Attributes:
        examples: of the step.
        preferences, likelihoods: examples that have the component.
        dialogues, tokens: examples and tokens with an advantage.
        distilled: tokens with a teacher.
        goals: states with a goal.
    """

    examples: int
    preferences: int
    likelihoods: int
    dialogues: int = 0
    tokens: int = 0
    distilled: int = 0
    goals: int = 0

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Counts:
        """Return those of a step's examples."""
        weighted = [[len(term.advantages) for term in example.terms] for example in examples if example.terms]
        return cls(
            examples=len(examples),
            preferences=sum(bool(example.rejected) and example.preference != 0 for example in examples),
            likelihoods=sum(example.likelihood != 0 for example in examples),
            dialogues=sum(any(lengths) for lengths in weighted),
            tokens=sum(map(sum, weighted)),
            distilled=sum(len(term.sampled) for example in examples for term in example.terms if term.distils),
            goals=sum(not isnan(goal) for example in examples for term in example.terms for goal in term.goals),
        )

    def share(self, count: int) -> float:
        """Return the factor that turns a mean over the step's examples into one over `count` of them; 0 for none."""
        return self.examples / count if count else 0.0
