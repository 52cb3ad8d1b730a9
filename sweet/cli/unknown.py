"""Errors for commands and options that do not exist."""

from __future__ import annotations

from collections.abc import Iterable

from sweet.errors import UsageError
from sweet.suggestions import did_you_mean


def unknown_command(parent: str, word: str, known: Iterable[str]) -> UsageError:
    """Return the error for a word that is not a command of `parent` (`sweet`, `sweet data`)."""
    return UsageError(
        f"{parent} has no command {word}.{did_you_mean(word, known)}", fix=f"{parent} --help shows the commands"
    )


def unknown_option(path: str, flag: str, known: Iterable[str]) -> UsageError:
    """Return the error for an option that is not among the `known` ones of `path` (`sweet`, `sweet rollout`)."""
    keys = [known_flag.removeprefix("--") for known_flag in known]
    return UsageError(
        f"{path} has no option {flag}.{did_you_mean(flag.lstrip('-'), keys, '--')}",
        fix=f"{path} --help shows what is allowed",
    )
