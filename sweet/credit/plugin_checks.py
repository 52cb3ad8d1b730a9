"""Check the credit rules of other packages, and report errors of their code as theirs.

A class is checked when it is imported. What it returns is checked when it is called: an exception becomes a
`SweetError` with the method, the package and the line, and a credit for something that is not in the batch, or with a
weight that is no finite number, is named here and not as a loss that is not finite. Errors of `sweet.errors` are meant
for the user and pass unchanged.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweet.credit.base import Batch, Credit, CreditRule, Models, SampledReply
from sweet.credit.hyperparameters import Hyperparameters
from sweet.errors import SweetError, UsageError, described
from sweet.learn.components import Objective
from sweet.plugins import Plugin
from sweet.runs.stages import KINDS
from sweet.stages.rows import Pair, Preference
from sweet.tasks.base import ProtocolName
from sweet.tasks.plugin_checks import place_of_failure


def load_rule(plugin: Plugin) -> type[CreditRule]:
    """Import the class of a package's rule, and return it with checks around its methods.

    Raises:
        UsageError: it cannot be imported, or an attribute is missing or wrong.
    """
    try:
        found = plugin.point.load()
    except (Exception, SystemExit) as error:  # a plug-in's module may raise anything
        raise _broken(plugin, f"cannot be imported: {described(error)}", error) from error
    if not (isinstance(found, type) and issubclass(found, CreditRule)):
        raise _broken(plugin, f"is not a class derived from sweet.credit.base.CreditRule but {found!r:.100}")
    missing = [name for name in ("name", "reads", "large", "small") if not hasattr(found, name)]
    missing += sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise _broken(plugin, f"lacks {', '.join(missing)}")
    if found.name != plugin.name:
        raise _broken(plugin, f"calls itself {found.name!r}")
    if found.reads not in KINDS:
        raise _broken(plugin, f"reads {found.reads!r}, and there are {', '.join(KINDS)}")
    for size in ("large", "small"):
        if not isinstance(getattr(found, size), Hyperparameters):
            raise _broken(plugin, f"has {type(getattr(found, size)).__name__} instead of Hyperparameters in {size}")
    return _checked(found, plugin)


def _broken(plugin: Plugin, problem: str, error: BaseException | None = None) -> UsageError:
    where = f"entry point {plugin.name} = {plugin.point.value}"
    place = None if error is None else place_of_failure(error)
    return UsageError(
        f"The credit rule {plugin.name!r} ({plugin}) {problem}.",
        where=where if place is None else f"{where}; {place}",
        fix=f"correct {plugin.package}",
    )


def _checked(rule: type[CreditRule], plugin: Plugin) -> type[CreditRule]:
    source = Path(inspect.getfile(rule))

    def wrong(method: str, problem: str, where: str | None = None) -> SweetError:
        return SweetError(
            f"{method} of the credit rule {plugin.name!r} ({plugin}) {problem}.",
            where=where,
            fix=f"correct it in {plugin.package}; --debug shows the traceback",
        )

    @contextmanager
    def calling(method: str) -> Iterator[None]:
        try:
            yield
        except SweetError:
            raise
        except (Exception, SystemExit) as error:
            raise wrong(method, f"raised {described(error)}", place_of_failure(error, source)) from error

    class Checked(rule):  # type: ignore[misc, valid-type]
        def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
            with calling("objective"):
                found = super().objective(beta, nll, protocol)
            if not isinstance(found, Objective):
                raise wrong("objective", f"returned {type(found).__name__} instead of Objective")
            return found

        def credit(self, batch: Batch, models: Models) -> list[Credit]:
            with calling("credit"):
                found: list[Credit] = super().credit(batch, models)
            if not isinstance(found, list):
                raise wrong("credit", f"returned {type(found).__name__} instead of list[Credit]")
            for number, credit in enumerate(found):
                if problem := _problem(credit, batch):
                    raise wrong("credit", f"returned {problem}", f"example {number}")
            return found

    Checked.__name__, Checked.__qualname__, Checked.__doc__ = rule.__name__, rule.__qualname__, rule.__doc__
    return Checked


def _problem(credit: Any, batch: Batch) -> str | None:
    """Say what is wrong with a credit; None if nothing is."""
    if not isinstance(credit, Credit):
        return f"{type(credit).__name__} instead of Credit"
    of: Any = credit.of
    if isinstance(of, str):
        if of not in batch.dialogues:
            return f"a credit of {of!r}, which is no dialogue of the batch"
        turns = set(batch.dialogues[of].agent_turns)
    elif isinstance(of, SampledReply):
        turns = {of.row.turn}
    elif isinstance(of, Preference | Pair):
        turns = set()
    else:
        return f"a credit of {type(of).__name__} instead of a dialogue's id, Preference, Pair or SampledReply"
    if unknown := sorted((credit.policy.keys() | credit.distil.keys()) - turns):
        return f"weights of turn {unknown[0]}, which is none of the agent's"
    weights = [credit.preference, credit.likelihood]
    for values in credit.policy.values():
        weights += [values] if isinstance(values, int | float) else list(values)
    odd = next((value for value in weights if not isinstance(value, int | float) or not math.isfinite(value)), None)
    return None if odd is None else f"the weight {odd!r}, which is no finite number"
