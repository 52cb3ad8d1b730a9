"""What the program writes into the docs is what it would write now, and nothing of the program is missing there."""

from __future__ import annotations

import re

from sweet.cli.app import all_commands, build
from sweet.cli.generated import chapters, command_pages, with_table
from sweet.cli.reference import METRICS, VARIABLES
from tests.docs.pages import ROOT

AGAIN = "run: python -m sweet.cli.generated"


def test_the_command_reference_is_current() -> None:
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == command_pages(), AGAIN


def test_the_table_of_commands_in_the_readme_is_current() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == with_table(readme), AGAIN


def test_every_command_stands_in_one_chapter_and_no_figure_without_its_command() -> None:
    line = build()
    named = [command.name for commands in chapters(line).values() for command in commands]
    assert sorted(named) == sorted(command.name for command in all_commands())
    assert METRICS.keys() - line.commands.keys() == set()


def test_every_variable_that_the_program_reads_is_named() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sweet").rglob("*.py"))
    options = {spec.envvar for specs in build().specs.values() for spec in specs}
    read = set(re.findall(r'"((?:SWEET|OPENAI|HF)_[A-Z_]*[A-Z])"', source)) - {"SWEET_ROLLOUT_NUM_TASKS"}
    assert read - options - VARIABLES.keys() == set()
    assert {name for name in VARIABLES if name.startswith("SWEET_") and name not in read} == set()
