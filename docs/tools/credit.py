"""Write the list of credit rules into docs/credit.md, from their classes.

`python -m docs.tools.credit`, run in the repository, writes everything below the heading `The rules`; a test checks
that it is current.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from sweet.credit.base import CreditRule
from sweet.credit.names import RULES
from sweet.credit.registry import rule_class

PAGE = Path("docs/credit.md")

HEADING = "## The rules\n"


def with_rules(page: str) -> str:
    """Return the page with the current list."""
    above, _, _ = page.partition(HEADING)
    return above + HEADING + "\n" + _table() + "".join(map(_section, RULES))


def _table() -> str:
    lines = ["| rule | learns from | asks | online |", "|---|---|---|---|"]
    for name in RULES:
        rule = rule_class(name)
        asks = "the run's critic" if rule.asks_critic else "a reward model of its own" if rule.trains_reward else ""
        lines.append(f"| [`{name}`](#{name}) | {rule.reads} | {asks} | {'yes' if rule.online else ''} |")
    return "\n".join(lines) + "\n"


def _section(name: str) -> str:
    rule = rule_class(name)
    module = inspect.cleandoc(sys.modules[rule.__module__].__doc__ or "")
    parts = [f"\n### {name}\n", f"{module}\n", f"{inspect.cleandoc(rule.__doc__ or '')}\n"]
    if rule.model_fields:
        parts.append(_options(rule))
    return "\n".join(parts)


def _options(rule: type[CreditRule]) -> str:
    lines = ["| option | default | |", "|---|---|---|"]
    for name, field in rule.model_fields.items():
        default = ("no", "yes")[field.default] if isinstance(field.default, bool) else field.default
        default = "" if default is None else default
        described = " ".join((field.description or "").split())
        lines.append(f"| `{name.replace('_', '-')}` | {default} | {described} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_rules(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
