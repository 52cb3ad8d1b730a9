"""The site of the documentation has all pages and loads nothing from elsewhere, and a broken link in it is an error."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, read_page

SETTINGS = ROOT / "docs" / "site"
EXTERNAL = re.compile(r"""(?:\bsrc|<link[^>]*\bhref)="(?:https?:)?//|url\(["']?(?:https?:)?//|@import""")
"""What makes a browser load something from elsewhere."""


def test_every_page_is_in_the_navigation_once() -> None:
    pytest.importorskip("sphinx")
    navigation = runpy.run_path(str(SETTINGS / "conf.py"))["NAVIGATION"]
    pages = [f"{page}.md" for part in navigation.values() for page in part.values()]
    assert sorted(pages) == sorted([*(path.relative_to(ROOT).as_posix() for path in PAGES), "CHANGELOG.md"])


def test_llms_txt_lists_every_page() -> None:
    listed = {link.text for link in read_page(ROOT / "llms.txt").links}
    assert listed == {path.relative_to(ROOT).as_posix() for path in PAGES} - {"examples/README.md"} | {"CHANGELOG.md"}


def test_a_broken_link_or_anchor_is_an_error_and_the_only_one(tmp_path: Path) -> None:
    pytest.importorskip("furo")
    source, site = tmp_path / "source", tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__", "tools")
    for folder in ("docs", "examples", "benchmarks/results"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for path in ROOT.glob("*.*"):
        if path.is_file():
            shutil.copyfile(path, source / path.name)
    page = source / "docs" / "cluster.md"
    page.write_text(f"{page.read_text('utf-8')}\n[one](nowhere.md)\n[two](sandbox.md#nothing)\n", encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", *map(str, (SETTINGS, source, site))]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 1, built.stderr
    warnings = [line for line in built.stderr.splitlines() if "WARNING" in line]
    assert len(warnings) == 2, built.stderr
    assert all("docs/cluster.md" in line for line in warnings)
    assert "nowhere.md" in warnings[0]
    assert "nothing" in warnings[1]

    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()
    files = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    assert len(files) > len(PAGES)
    assert [path.name for path in files if EXTERNAL.search(path.read_text("utf-8"))] == []
