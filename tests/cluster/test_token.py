"""A cluster that requires an authentication token, as `ray start` sets it up if there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

HEAD = """
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
cluster = Cluster(initialize_head=True, head_node_args=node)
print(cluster.address, flush=True)
input()
cluster.shutdown()
"""
FEW_RETRIES = {"RAY_NUM_REDIS_GET_RETRIES": "2"}
TOKEN = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert head.stdout is not None
    yield next(line.strip() for line in head.stdout if line[0].isdigit())
    head.communicate("\n", timeout=60)


JOIN = """
import sys
from sweet.cluster.nodes import open_cluster
from sweet.errors import ServerError
try:
    with open_cluster(sys.argv[1]) as cluster:
        print(len(cluster.nodes()))
except ServerError as error:
    sys.exit(error.fix)
"""


def join(address: str, home: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-c", JOIN, address]
    environment = inherited | FEW_RETRIES | {"HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_an_existing_token_is_used(address: str, tmp_path: Path) -> None:
    file = tmp_path / ".ray/auth_token"
    file.parent.mkdir()
    file.write_text(TOKEN)
    found = join(address, tmp_path)
    assert found.stdout == "1\n", found.stderr


def test_without_a_token_the_error_says_where_ray_looks_for_it(address: str, tmp_path: Path) -> None:
    found = join(address, tmp_path)
    assert found.returncode == 1
    assert "RAY_AUTH_MODE=token" in found.stderr
