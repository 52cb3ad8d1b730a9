"""Make a release: `python -m docs.tools.release 0.2.0`, run in the repository with no uncommitted change.

Writes the version where it stands (sweet/installation.py, from which the packages take it, and CITATION.cff), puts what
CHANGELOG.md has under `Unreleased` under the version and the day, commits and makes the tag `v0.2.0`. Nothing is sent:
`git push --follow-tags` does that, and a public host then publishes what the tag has (.github/workflows/release.yml).
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
from pathlib import Path

from packaging.version import InvalidVersion, Version

UNRELEASED = "## [Unreleased]\n"
_VERSION = re.compile(r'^VERSION = "(.+)"$', re.MULTILINE)


def release(root: Path, version: str, day: datetime.date) -> None:
    """Write the version into the files under `root`, commit them and tag the commit.

    Raises:
        ValueError: the version is none, or not a later one than the last tag; there are uncommitted changes; or nothing
            is unreleased.
    """
    wanted = Version(version)
    if str(wanted) != version:
        raise ValueError(f"{version} is written {wanted}")
    if _git(root, "status", "--porcelain"):
        raise ValueError("there are uncommitted changes: git status")
    later = [tag for tag in _git(root, "tag", "--list", "v*").split() if Version(tag[1:]) >= wanted]
    if later:
        raise ValueError(f"{later[-1]} has been released")
    source, changes, citation = (root / name for name in ("sweet/installation.py", "CHANGELOG.md", "CITATION.cff"))
    _, found, unreleased = changes.read_text(encoding="utf-8").partition(UNRELEASED)
    if not found or not unreleased.partition("\n## [")[0].strip():
        raise ValueError(f"{changes} has nothing below {UNRELEASED.strip()}")
    _rewrite(source, _VERSION, f'VERSION = "{version}"')
    _rewrite(changes, re.compile(re.escape(UNRELEASED)), f"{UNRELEASED}\n## [{version}] - {day}\n")
    told = re.sub(r"^(version|date-released): .*\n", "", citation.read_text(encoding="utf-8"), flags=re.MULTILINE)
    citation.write_text(f"{told}version: {version}\ndate-released: {day}\n", encoding="utf-8")
    _git(root, "commit", "--quiet", "--all", "--message", f"Version {version}")
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Version {version}")


def _rewrite(path: Path, pattern: re.Pattern[str], text: str) -> None:
    whole, times = pattern.subn(lambda _: text, path.read_text(encoding="utf-8"))
    if times != 1:
        raise ValueError(f"{path} has {times} places for the version")
    path.write_text(whole, encoding="utf-8")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a version, commit and tag it.")
    parser.add_argument("version", help="such as 0.2.0")
    try:
        release(Path.cwd(), parser.parse_args().version, datetime.datetime.now(tz=datetime.UTC).date())
    except (ValueError, InvalidVersion) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
