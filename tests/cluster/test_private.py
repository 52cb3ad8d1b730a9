"""The cluster that `--ray local` starts: its ports, its files and its token."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweet.cluster.nodes import import_ray
from sweet.cluster.private import check_private, protect_token
from sweet.errors import UsageError

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None or sys.platform != "linux", reason="Ray is not installed, or there is no /proc"
)

PROGRAM = """
import json, os, sys
from pathlib import Path
from sweet.cluster.nodes import open_cluster

def sockets():
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found[f"socket:[{words[9]}]"] = words[1].split(":")[0]
    return found

def family():
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[entry.name] = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
    found = {str(os.getpid())}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found

def open_sockets(pid):
    try:
        return [os.readlink(entry) for entry in Path("/proc", pid, "fd").iterdir()]
    except OSError:
        return []

with open_cluster("local") as cluster:
    assert cluster.ray.get(cluster.ray.remote(lambda: 5).remote()) == 5
    listening = sockets()
    addresses = [listening[name] for pid in family() for name in open_sockets(pid) if name in listening]
    folder = os.path.dirname(cluster.ray._private.worker._global_node.get_temp_dir_path())
    mode = os.stat(folder).st_mode
print(json.dumps({"addresses": addresses, "folder": folder, "mode": mode, "left": os.path.exists(folder)}))
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def started(home: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=environment | {"HOME": str(home)}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_this_user_of_this_machine_reaches_a_local_cluster(tmp_path: Path) -> None:
    token = tmp_path / ".ray/auth_token"
    token.parent.mkdir()
    token.write_text("0123456789abcdef" * 4)
    token.chmod(0o644)
    found = started(tmp_path)
    assert len(found["addresses"]) >= 4, "the head, the node, its agent and a worker"
    assert set(found["addresses"]) <= LOOPBACK
    assert stat.S_IMODE(found["mode"]) == 0o700
    assert not found["left"]
    assert token.read_text() == "0123456789abcdef" * 4
    assert mode(token) == 0o600


def test_a_token_is_made_that_only_this_user_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    import_ray()
    protect_token()
    token = tmp_path / ".ray/auth_token"
    assert (mode(token), mode(token.parent)) == (0o600, 0o700)
    text = token.read_text()
    assert len(text) == 64
    protect_token()
    assert token.read_text() == text
    assert list(token.parent.iterdir()) == [token]


def test_a_cluster_that_other_machines_could_reach_is_refused() -> None:
    class Ray:
        __version__ = "9.9"

        def __init__(self, *addresses: str) -> None:
            self.addresses = addresses

        def nodes(self) -> list[dict[str, str]]:
            return [{"NodeManagerAddress": address} for address in self.addresses]

    check_private(Ray("127.0.0.1"))
    with pytest.raises(UsageError, match=r"Ray 9\.9 listens on 127\.0\.0\.1, 10\.0\.0\.5"):
        check_private(Ray("127.0.0.1", "10.0.0.5"))
