"""The table of versions, and the workflows for the Pythons of pyproject.toml."""

from __future__ import annotations

import json
import re
import tomllib

import yaml

from benchmarks.versions import BEGIN, END, PAGE, ROWS, table
from docs.tools.commands import put_between
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


def test_the_table_of_versions_is_current() -> None:
    rows = [json.loads(line) for line in (ROOT / ROWS).read_text(encoding="utf-8").splitlines()]
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == put_between(page, BEGIN, END, table(rows)), "run: python -m benchmarks.versions"
    assert {row["python"].rpartition(".")[0] for row in rows} <= set(PYTHONS)


def test_the_workflows_run_the_checks_on_every_python() -> None:
    folder = ROOT / ".github" / "workflows"
    checks = yaml.safe_load((folder / "checks.yml").read_text(encoding="utf-8"))["jobs"]["linux"]
    assert checks["strategy"]["matrix"]["python"] == PYTHONS
    assert {"run": ".ci/run"} in checks["steps"]
    published = yaml.safe_load((folder / "release.yml").read_text(encoding="utf-8"))["jobs"]["publish"]
    assert published["permissions"] == {"id-token": "write"}
