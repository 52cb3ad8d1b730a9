"""Import credit rules by name (`sweet.credit.names`), check those of other packages, and create them with options.

A class of another package is checked when it is imported (`sweet.plugin_code`). What it returns is checked when it is
called: a credit for something that is not in the batch, or with a weight that is no finite number, is named here and
not as a loss that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from pydantic import ValidationError

from sweet.credit.base import Batch, Credit, CreditRule, Hyperparameters, Models
from sweet.credit.names import RULES, rule_names
from sweet.errors import UsageError, first_problem
from sweet.learn.components import Objective
from sweet.learn.rows import Pair, Preference
from sweet.plugin_code import PluginCode, installed_plugin
from sweet.plugins import CREDIT, Plugin
from sweet.runs.stages import KINDS
from sweet.suggestions import did_you_mean
from sweet.tasks.base import ProtocolName


def rule_class(name: str) -> type[CreditRule]:
    """Return the class of a rule.

    Raises:
        UsageError: there is no such rule, several packages have one of this name, or it cannot be imported.
    """
    if name in RULES:
        rule: type[CreditRule] = resolve_name(RULES[name])
        return rule
    return _load_rule(installed_plugin(CREDIT, "credit rule", name, rule_names(), "algorithm"))


def credit_rule(name: str, options: Sequence[str] = (), given_by: str = "--rule-option ") -> CreditRule:
    """Return a rule with its options.

    Args:
        options: as NAME=VALUE.
        given_by: what each of them follows where it was given, for errors.

    Raises:
        UsageError: see `rule_class`; or an option is unknown, or its value invalid.
    """
    rule = rule_class(name)
    values: dict[str, Any] = {}
    for text in options:
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or key not in rule.model_fields:
            names = ", ".join(f"{field.replace('_', '-')}=…" for field in rule.model_fields)
            raise UsageError(
                f"The rule {name} has no such option." + did_you_mean(key, rule.model_fields),
                where=given_by + text,
                fix=f"it has {names}" if names else "omit it: it has none",
            )
        values[key] = value.strip()
    try:
        return rule(**values)
    except ValidationError as error:
        place, what = first_problem(error)
        key = place.partition(".")[0]
        raise UsageError(
            f"The rule {name} does not take this value: {what}.",
            where=f"{given_by}{key.replace('_', '-')}={values.get(key, '')}",
            fix=(rule.model_fields[key].description or "") if key in rule.model_fields else None,
        ) from error


def _load_rule(plugin: Plugin) -> type[CreditRule]:
    """Import the class of a package's rule, and return it with checks around its methods.

    Raises:
        UsageError: it cannot be imported, or an attribute is missing or wrong.
    """
    code = PluginCode("credit rule", plugin)
    rule = code.load(CreditRule)  # type: ignore[type-abstract]
    if missing := [name for name in ("name", "reads", "large", "small") if not hasattr(rule, name)]:
        raise code.broken(f"lacks {', '.join(missing)}")
    if rule.name != plugin.name:
        raise code.broken(f"calls itself {rule.name!r}")
    if rule.reads not in KINDS:
        raise code.broken(f"reads {rule.reads!r}, and there are {', '.join(KINDS)}")
    for size in ("large", "small"):
        if not isinstance(getattr(rule, size), Hyperparameters):
            raise code.broken(f"has {type(getattr(rule, size)).__name__} instead of Hyperparameters in {size}")
    return _checked(rule, code)


def _checked(rule: type[CreditRule], code: PluginCode) -> type[CreditRule]:
    class Checked(rule):  # type: ignore[misc, valid-type]
        def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
            with code.calling("objective"):
                returned = super().objective(beta, nll, protocol)
            if not isinstance(returned, Objective):
                raise code.error("objective", f"returned {type(returned).__name__} instead of Objective")
            return returned

        def credit(self, batch: Batch, models: Models) -> list[Credit]:
            with code.calling("credit"):
                returned: list[Credit] = super().credit(batch, models)
            if not isinstance(returned, list):
                raise code.error("credit", f"returned {type(returned).__name__} instead of list[Credit]")
            for number, credit in enumerate(returned):
                if problem := _problem(credit, batch):
                    raise code.error("credit", f"returned {problem}", f"example {number}")
            return returned

    Checked.__name__, Checked.__qualname__, Checked.__doc__ = rule.__name__, rule.__qualname__, rule.__doc__
    return Checked


def _problem(credit: Any, batch: Batch) -> str | None:
    """Say what is wrong with a credit; None if nothing is."""
    if not isinstance(credit, Credit):
        return f"{type(credit).__name__} instead of Credit"
    subject: Any = credit.of
    if isinstance(subject, str):
        if subject not in batch.dialogues:
            return f"a credit of {subject!r}, which is no dialogue of the batch"
        turns = set(batch.dialogues[subject].agent_turns)
    elif isinstance(subject, Preference | Pair):
        turns = {subject.turn} if isinstance(subject, Pair) and subject.rejected is None else set()
    else:
        return f"a credit of {type(subject).__name__} instead of a dialogue's id, Preference or Pair"
    if unknown := sorted(credit.turns - turns):
        return f"weights of turn {unknown[0]}, which is none of the agent's"
    weights = [credit.preference, credit.likelihood]
    for values in credit.policy.values():
        weights += [values] if isinstance(values, int | float) else list(values)
    wrong = next((value for value in weights if not isinstance(value, int | float) or not math.isfinite(value)), None)
    return None if wrong is None else f"the weight {wrong!r}, which is no finite number"
