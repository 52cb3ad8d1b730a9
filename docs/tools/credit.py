"""Write the list of credit rules into docs/credit.md, from their classes.

`python -m docs.tools.credit`, run in the repository, writes everything below the heading `The rules`; a test checks
that it is current.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from functools import cache
from pathlib import Path

from sweet.credit.base import CreditRule
from sweet.credit.names import RULES
from sweet.credit.registry import rule_class

PAGE = Path("docs/credit.md")

HEADING = "## The rules\n"
NOTE = "The module of each rule in `sweet/credit` says more. An option is followed by its default.\n"

GROUPS = {
    "reward models": ("reward-beta", "reward-lr", "reward-epochs", "reward-batch"),
    "policy gradients": ("clip-low", "clip-high", "bound", "average"),
}
"""Options that many rules have together."""


def with_rules(page: str) -> str:
    """Return the page with the current list."""
    above, _, _ = page.partition(HEADING)
    return f"{above}{HEADING}\n{NOTE}\n{_table()}{_shared()}{''.join(map(_section, RULES))}"


def _table() -> str:
    found: dict[tuple[str, str], list[str]] = {}
    for name in RULES:
        rule = rule_class(name)
        online = "no" if not rule.online else "only" if rule.value_head else "too"
        found.setdefault((rule.reads, online), []).append(f"`{name}`")
    rows = [f"| {reads} | {online} | {', '.join(names)} |" for (reads, online), names in found.items()]
    return "\n".join(["| artifact that is read | online | rules |", "|---|---|---|", *rows, ""])


def _options(rule: type[CreditRule]) -> dict[str, tuple[str, str]]:
    """Return the default and the description of each option of a rule, as texts."""
    found = {}
    for name, field in rule.model_fields.items():
        default = ("no", "yes")[field.default] if isinstance(field.default, bool) else field.default
        described = " ".join((field.description or "").split())
        found[name.replace("_", "-")] = ("" if default is None else str(default), described)
    return found


@cache
def _often() -> dict[str, tuple[str, str]]:
    """Return the usual default and the description of the options that several rules describe in the same words."""
    found = [(name, *rest) for rule in RULES for name, rest in _options(rule_class(rule)).items()]
    texts = Counter((name, text) for name, _, text in found)
    defaults = {
        (name, text): Counter(one for other, one, words in found if (other, words) == (name, text)).most_common(1)[0][0]
        for (name, text), count in texts.items()
        if count > 1
    }
    return {name: (default, text) for (name, text), default in defaults.items()}


def _shared() -> str:
    rows = [f"| `{name}` | {default} | {text} |" for name, (default, text) in _often().items()]
    groups = "; ".join(f"{name}: {', '.join(f'`{key}`' for key in keys)}" for name, keys in GROUPS.items())
    head = f"\nOptions of several rules ({groups}):\n"
    return "\n".join([head, "| option | default | meaning |", "|---|---|---|", *rows, ""])


def _section(name: str) -> str:
    """Return the section of a rule: the first paragraph of its module, once where it has several, and its formula."""
    rule = rule_class(name)
    siblings = [other for other in RULES if rule_class(other).__module__ == rule.__module__]
    module, _, _ = inspect.cleandoc(sys.modules[rule.__module__].__doc__ or "").partition("\n\n")
    parts = [f"\n### {name}\n", *([f"{module}\n"] if name == siblings[0] else [])]
    parts.append(f"{inspect.cleandoc(rule.__doc__ or '')}\n")
    shared = {
        key: f"`{key}`" if default == _often()[key][0] else f"`{key}` ({default})"
        for key, (default, text) in _options(rule).items()
        if key in _often() and _often()[key][1] == text
    }
    if shared:
        named = [*shared.values()]
        for group, keys in GROUPS.items():
            if all(f"`{key}`" in named for key in keys):
                named = [f"all of {group}", *(text for text in named if text.strip("`") not in keys)]
        parts.append(f"Options: {', '.join(named)}.\n")
    own = [(key, *rest) for key, rest in _options(rule).items() if key not in shared]
    if own:
        parts.append("".join(f"- `{key}`{f' ({default})' * bool(default)}: {text}\n" for key, default, text in own))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(with_rules(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
