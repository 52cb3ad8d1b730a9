"""Import credit rules by name (`sweet.credit.names`), check them, and create them with their options."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from pydantic import ValidationError

from sweet.credit.base import CreditRule
from sweet.credit.names import RULES, rule_names
from sweet.credit.plugin_checks import load_rule
from sweet.errors import UsageError
from sweet.hints import option
from sweet.plugin_code import installed_plugin
from sweet.plugins import CREDIT
from sweet.suggestions import did_you_mean


def rule_class(name: str, named_by: str = "method") -> type[CreditRule]:
    """Return the class of a rule.

    Args:
        named_by: the option that names the rule, for errors.

    Raises:
        UsageError: there is no such rule, several packages have one of this name, or it cannot be imported.
    """
    if name in RULES:
        found: type[CreditRule] = resolve_name(RULES[name])
        return found
    return load_rule(installed_plugin(CREDIT, "credit rule", name, rule_names(), named_by))


def credit_rule(name: str, options: Sequence[str] = (), named_by: str = "method") -> CreditRule:
    """Return a rule with its options.

    Args:
        options: as NAME=VALUE.
        named_by: the option that names the rule, for errors.

    Raises:
        UsageError: see `rule_class`; or an option is unknown, or its value invalid.
    """
    rule = rule_class(name, named_by)
    values: dict[str, Any] = {}
    for text in options:
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or key not in rule.model_fields:
            known = ", ".join(f"{field.replace('_', '-')}=…" for field in rule.model_fields)
            raise UsageError(
                f"The rule {name} has no such option." + did_you_mean(key, rule.model_fields),
                where=option("rule_option", text),
                fix=f"it has {known}" if known else "omit it: it has none",
            )
        values[key] = value.strip()
    try:
        return rule(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        raise UsageError(
            f"The rule {name} does not take this value: {first['msg']}.",
            where=option("rule_option", f"{key.replace('_', '-')}={values.get(key, '')}"),
            fix=(rule.model_fields[key].description or "") if key in rule.model_fields else None,
        ) from error
