"""A release writes the version wherever it stands, and is made once."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.tools.release import release
from tests.docs.pages import ROOT

DAY = datetime.date(2027, 1, 31)


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b.c")
    for name in ("sweet/installation.py", "CHANGELOG.md", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "start")
    return tmp_path


def test_a_release_writes_the_version_and_tags_it(repository: Path) -> None:
    release(repository, "7.0.0", DAY)
    assert 'VERSION = "7.0.0"' in (repository / "sweet/installation.py").read_text()
    changes = (repository / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [7.0.0] - 2027-01-31\n" in changes
    assert git(repository, "show", "v7.0.0:CITATION.cff").endswith("\nversion: 7.0.0\ndate-released: 2027-01-31\n")
    assert git(repository, "status", "--porcelain") == ""
    with pytest.raises(ValueError, match="nothing below"):
        release(repository, "7.1.0", DAY)
    (repository / "CHANGELOG.md").write_text(changes.replace("[Unreleased]\n", "[Unreleased]\n\n- Something.\n"))
    with pytest.raises(ValueError, match="uncommitted"):
        release(repository, "7.1.0", DAY)
    git(repository, "commit", "--all", "--message", "something")
    for version in ("7.0.0", "6.9", "one", "7.01"):
        with pytest.raises(ValueError):
            release(repository, version, DAY)
    release(repository, "7.1.0", DAY)
    assert (repository / "CITATION.cff").read_text().count("version: ") == 2  # the format's, and the program's
    assert (
        "## [Unreleased]\n\n## [7.1.0] - 2027-01-31\n\n- Something.\n\n## [7.0.0]"
        in (repository / "CHANGELOG.md").read_text()
    )
