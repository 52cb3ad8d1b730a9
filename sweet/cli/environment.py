"""Options from environment variables, such as `SWEET_ROLLOUT_NUM_TASKS`."""

from __future__ import annotations

import os

from sweet.cli.declaration import OptionSpec

YES, NO = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")
"""Values of the variable of a switch."""


def from_environment(option: OptionSpec) -> str | list[str] | None:
    """Return the text of an option's variable, split at white space if it is a list; None if it is unset or empty."""
    text = os.environ.get(option.envvar)
    if not text:
        return None
    return text.split() if option.is_list else text
