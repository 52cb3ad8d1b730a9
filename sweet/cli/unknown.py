"""Errors for commands and options that do not exist, and warnings of environment variables that no command reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from sweet.cli.declaration import env_prefix
from sweet.cli.registry import Registry
from sweet.errors import UsageError
from sweet.suggestions import did_you_mean, nearest

PREFIX = "SWEET_"
_ALIKE = 0.8
"""Similarity from which a variable outside of every command's names is taken for a misspelt setting. Others may belong
to the user's own programs."""


def unknown_command(parent: str, word: str, known: Iterable[str]) -> UsageError:
    """Return the error for a word that is not a command of `parent` (`sweet`, `sweet data`)."""
    return UsageError(
        f"{parent} has no command {word}.{did_you_mean(word, known)}", fix=f"{parent} --help shows the commands"
    )


def unknown_option(path: str, flag: str, known: Iterable[str], help_flag: str = "--help") -> UsageError:
    """Return the error for an option that is not among the `known` ones of `path` (`sweet`, `sweet rollout`).

    Args:
        help_flag: the flag of the help that lists every option.
    """
    keys = [known_flag.removeprefix("--") for known_flag in known]
    return UsageError(
        f"{path} has no option {flag}.{did_you_mean(flag.lstrip('-'), keys, '--')}",
        fix=f"{path} {help_flag} shows what is allowed",
    )


def unknown_variables(registry: Registry, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield a warning for each variable that has the prefix of a command, or nearly the name of a setting, and that no
    command reads. Values are not shown: they may be keys."""
    given = sorted(name for name in environment if name.startswith(PREFIX))
    if not given:
        return
    from sweet.cli.reference import VARIABLES

    settings = [name for name in VARIABLES if name.startswith(PREFIX)]
    if not (given := [name for name in given if name not in settings]):
        return
    by_prefix: dict[str, list[str]] = {}
    former: set[str] = set()
    for command in registry.summaries:
        declared = registry.declaration(command, from_index=True)
        by_prefix[f"{env_prefix(command)}_"] = [option.envvar for option in declared.accepted]
        former |= {option.envvar for option in declared.former}
    read = {*former, *(name for names in by_prefix.values() for name in names)}
    for name in given:
        if name in read:
            continue
        prefix = max((prefix for prefix in by_prefix if name.startswith(prefix)), key=len, default="")
        alike = nearest(name, settings, _ALIKE)
        if prefix or alike:
            meant = f" Did you mean {alike}?" if alike else did_you_mean(name, by_prefix[prefix])
            yield f"The environment variable {name} is ignored: no command reads it.{meant}"
