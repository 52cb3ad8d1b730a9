"""The generated parts of the docs are current and complete."""

from __future__ import annotations

import re

from docs.tools.commands import RECORDS, command_pages, metrics_of
from docs.tools.credit import with_rules
from sweet.cli.errors import VARIABLES
from sweet.cli.group import Group, load
from tests.docs.pages import ROOT

AGAIN = "run: python -m docs.tools.commands"


def test_the_command_reference_is_current() -> None:
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == command_pages(), AGAIN


def test_the_list_of_credit_rules_is_current() -> None:
    page = (ROOT / "docs" / "credit.md").read_text(encoding="utf-8")
    assert page == with_rules(page), "run: python -m docs.tools.credit"


def test_every_command_is_in_the_reference_and_every_metric_has_its_command() -> None:
    assert {load(name).spec.name for name in Group.names()} == set(Group.names())
    assert {name for name in Group.names() if not metrics_of(name)} == {"doctor", "status"}
    assert set(RECORDS) <= set(Group.names())


def test_every_variable_that_the_program_reads_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sweet").rglob("*.py"))
    options = {option.envvar for name in Group.names() for option in load(name).spec.options}
    read = set(re.findall(r'"((?:SWEET|OPENAI|HF)_[A-Z_]*[A-Z])"', source))
    assert read - options - VARIABLES.keys() == set()
    assert {name for name in VARIABLES if name.startswith("SWEET_") and name not in read} == set()
