"""The metrics of html tasks: the cosine, and diagnostics that explain it."""

from __future__ import annotations

from collections.abc import Callable

from sweet.tasks.html.diagnostics import Diagnostics
from sweet.tasks.scores import Metric, Score, reward


def _diagnostic(name: str) -> Callable[[Score], float | None]:
    def value(score: Score) -> float | None:
        diagnostics: dict[str, float] = score.detail.get("diagnostics", {})
        return diagnostics.get(name)

    return value


METRICS = {
    "cosine": Metric(reward, low=-1.0),
    **{name: Metric(_diagnostic(name)) for name in Diagnostics.__dataclass_fields__},
}
