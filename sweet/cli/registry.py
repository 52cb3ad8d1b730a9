"""The commands of the program: their names in the order of the help, and how each is loaded.

Help and completion read declarations from the index, which imports no command. A call loads the module of its own
command, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweet.cli.declaration import Declaration

if TYPE_CHECKING:
    from sweet.cli.command import Command


@dataclass(frozen=True)
class Registry:
    """The commands of a program.

    Attributes:
        panels: first words of commands by the title under which the help lists them, in its order.
        summaries: one line for each command, by its name.
        load: returns the command with a name; raises KeyError if there is none.
        indexed: returns the declaration of a command without importing it; None if there is no index.
        groups: summaries of the groups, by the first word that their commands share.
        introduction, examples: the beginning of the help.
    """

    panels: Mapping[str, Sequence[str]]
    summaries: Mapping[str, str]
    load: Callable[[str], Command[Any]]
    indexed: Callable[[str], Declaration] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    introduction: str = ""
    examples: tuple[tuple[str, str], ...] = ()

    def members(self, group: str | None) -> dict[str, str]:
        """Return summaries by word: of a group's commands, or of the first words if `group` is None."""
        if group is None:
            first_words = [word for words in self.panels.values() for word in words]
            return {word: self.groups.get(word) or self.summaries.get(word, "") for word in first_words}
        return {name.split()[1]: text for name, text in self.summaries.items() if name.startswith(f"{group} ")}

    def declaration(self, name: str, *, from_index: bool) -> Declaration:
        """Return the declaration of a command.

        Args:
            from_index: read it from the index where there is one, instead of importing the command.

        Raises:
            KeyError: there is no such command.
        """
        if from_index and self.indexed is not None and name in self.summaries:
            return self.indexed(name)
        from sweet.cli.command import declare

        return declare(self.load(name))
