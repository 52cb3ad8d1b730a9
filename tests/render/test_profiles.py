"""Folders of browsers: locked while their owner lives, removed by the next process if it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sweet.render.profiles import NEW, Profile, remove_stale

CHILD = "from sweet.render.profiles import Profile; p = Profile({}); print(p.folder, flush=True); input()"


def test_a_folder_is_removed_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().decode().strip())
        os.utime(folder, (0, 0))
        remove_stale()
        assert (folder / "user.js").is_file()
        child.kill()
    other = tmp_path / "somebody-else"
    other.mkdir()
    os.utime(other, (0, 0))
    remove_stale()
    assert list(tmp_path.iterdir()) == [other]


def test_a_folder_that_is_being_created_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Path(tempfile.mkdtemp(prefix="sweet-firefox-"))
    remove_stale()
    assert folder.is_dir()
    os.utime(folder, (folder.stat().st_mtime - 2 * NEW,) * 2)
    remove_stale()
    assert not folder.exists()


def test_port_and_last_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    profile = Profile({"a.flag": True, "a.word": 'x"\\', "a.number": 3})
    assert (profile.folder / "user.js").read_text().splitlines() == [
        'user_pref("a.flag", true);',
        'user_pref("a.word", "x\\"\\\\");',
        'user_pref("a.number", 3);',
    ]
    assert (profile.port(), profile.last_output()) == (None, "")
    profile.log.write_bytes(b"first\nlast \x1b[31mword\xff\n")
    server = profile.folder / "WebDriverBiDiServer.json"
    server.write_text('{"ws_host": "127.0.0.1", "ws_po')
    assert (profile.port(), profile.last_output()) == (None, "last [31mword\ufffd")
    server.write_text('{"ws_host": "127.0.0.1", "ws_port": 4321}')
    assert profile.port() == 4321
    profile.remove()
    assert list(tmp_path.iterdir()) == []
