"""docs/tutorials.md runs as it stands, and its notebook has the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from docs.tools.notebook import NOTEBOOK, PAGE, notebook
from sweet.cli.app import run
from sweet.sandbox.tiers import probe_tiers
from tests.docs.command_lines import simple_commands
from tests.docs.pages import ROOT, read_page
from tests.packages import register


def test_the_notebook_is_that_of_the_page() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    stored = (ROOT / NOTEBOOK).read_text(encoding="utf-8")
    assert stored == notebook(page), "run: python -m docs.tools.notebook"
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.reads(stored, as_version=4))
    parts = json.loads(stored)["cells"]
    cells = ["".join(cell["source"]) for cell in parts]
    assert "%pip install sweet-colbench" in cells
    assert sum(cell.startswith(("!", "%pip")) for cell in cells) == page.count("```console")
    texts = ["".join(cell["source"]) for cell in parts if cell["cell_type"] == "markdown"]
    links = [part.partition(")")[0] for text in texts for part in text.split("](")[1:]]
    assert links
    assert [link for link in links if not (ROOT / NOTEBOOK.parent / link.partition("#")[0]).exists()] == []


@pytest.mark.skipif(not any(tier.works for tier in probe_tiers() if tier.name != "unsafe"), reason="no jail works here")
@pytest.mark.usefixtures("forked_python")
def test_the_tutorials_run(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("URL", "")
    monkeypatch.setattr("sweet.plugins._registered", {})
    names: dict[str, Any] = {"__name__": "__main__"}
    last: list[str] = []
    for block in read_page(ROOT / PAGE).blocks:
        if block.language == "python":
            exec(compile(block.text, block.where, "exec"), names)
            continue
        for command in simple_commands(block):
            words = [os.path.expandvars(word) for word in command.words]
            if words[:2] == ["pip", "install"]:
                if Path(words[-1]).is_dir():
                    for folder in register(Path(words[-1]), tmp_path / "site"):
                        monkeypatch.syspath_prepend(folder)
                continue
            code, captured = run(words[1:]), capsys.readouterr()
            assert code == 0, f"{command.where}: {command}: {captured.err}"
            last.append(captured.out)
    assert "success rate" in last[-1]
    assert Path("report.html").is_file()
    assert names["run"].manifest().artifacts[-1].meta["algorithm"] == "discounted"
