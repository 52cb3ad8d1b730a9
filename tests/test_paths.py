"""A user without a home: a container's, whose id is of no account, without the variable."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from sweet.cli.app import app
from sweet.cli.app import run as call
from sweet.files import write_whole
from sweet.paths import cache_folder, data_folder, home
from sweet.runs.cache import cached_sha256
from sweet.runs.content import file_sha256
from sweet.runs.run import Run


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_account(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "SWEET_CACHE", "SWEET_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_account)


def test_nothing_is_found_or_written_there() -> None:
    for folder in (home() / ".ray", cache_folder("sums"), data_folder()):
        assert folder.is_absolute()
        assert not folder.is_dir()
        with pytest.raises(NotADirectoryError):
            write_whole(folder / "file", b"1")


def test_what_would_be_cached_is_computed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    for _ in range(2):
        assert cached_sha256(tmp_path / "file", file_sha256) == hashlib.sha256(b"1").hexdigest()


def test_commands_work(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.create("runs/r")
    assert call(("status", "runs/r", "--json"), app) == 0
    assert json.loads(capsys.readouterr().out)["next"] == ["sweet rollout runs/r"]
