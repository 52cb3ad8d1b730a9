"""What is chosen from a list over the screen: other rollouts of the run, and the columns of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList, SelectionList
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from sweet.runs.manifest import Artifact, Manifest
from sweet.units import count
from sweet.view.app.columns import Column
from sweet.view.records import ranked_rollouts
from sweet.view.text import printable_line

_BOX = """
    width: 76; max-width: 100%; height: auto; max-height: 80%;
    border: round ansi_bright_black; background: ansi_default;
"""


def rollouts_in_words(manifest: Manifest, artifact: Artifact) -> str:
    """Return the id of rollouts with what distinguishes them from others of the run."""
    meta = artifact.meta
    ranked = {source.id for source in ranked_rollouts(manifest)}
    facts = [
        f"{artifact.id:<12}",
        "unfinished" if artifact.rows is None else count(artifact.rows, "dialogue"),
        *(f"{name} {meta[key]}" for key, name in (("agent", "agent"), ("split", "split")) if meta.get(key)),
        "with candidates" if artifact.id in ranked else "",
    ]
    return "  ".join(printable_line(fact) for fact in facts if fact)


class ChooseRollouts(ModalScreen[str | None]):
    """Asks for rollouts of the run; the result is their id, None if the user cancels.

    Args:
        here: the id of those at which the list begins.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "leave")]
    DEFAULT_CSS = f"""
    ChooseRollouts {{ align: center middle; }}
    ChooseRollouts OptionList, ChooseRollouts OptionList:focus {{ {_BOX} }}
    """

    def __init__(self, question: str, manifest: Manifest, listed: Sequence[Artifact], here: str = "") -> None:
        super().__init__()
        self._question, self._manifest, self._listed, self._here = question, manifest, list(listed), here

    def compose(self) -> ComposeResult:
        lines = [Text(rollouts_in_words(self._manifest, one), no_wrap=True) for one in self._listed]
        chosen = OptionList(*map(Option, lines), markup=False)
        chosen.border_title = self._question
        yield chosen

    def on_mount(self) -> None:
        ids = [one.id for one in self._listed]
        self.query_one(OptionList).highlighted = ids.index(self._here) if self._here in ids else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._listed[event.option_index].id)


class ChooseColumns(ModalScreen[tuple[Column, ...]]):
    """Asks which columns are shown; the one with the name always is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "done", "done")]
    DEFAULT_CSS = f"""
    ChooseColumns {{ align: center middle; }}
    ChooseColumns SelectionList, ChooseColumns SelectionList:focus {{ {_BOX} }}
    """

    def __init__(self, every: Sequence[Column], shown: Sequence[Column]) -> None:
        super().__init__()
        self._every, self._shown = tuple(every), set(shown)

    def compose(self) -> ComposeResult:
        optional = [(number, column) for number, column in enumerate(self._every) if column.kind != "name"]
        chosen = SelectionList[int](
            *(Selection(column.title, number, column in self._shown) for number, column in optional)
        )
        chosen.border_title = "columns: space changes, esc closes"
        yield chosen

    def action_done(self) -> None:
        chosen = set(self.query_one(SelectionList).selected)
        self.dismiss(tuple(one for number, one in enumerate(self._every) if number in chosen or one.kind == "name"))
