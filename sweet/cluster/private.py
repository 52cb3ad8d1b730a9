"""Starts Ray's processes so that only this user of this machine can use them.

Ray has no option for the interface on which it listens. It listens on the loopback interface if the node's address is
that interface, which a variable makes it take, one that Ray has for systems where it does not support clusters.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.hints import option

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""0 makes Ray take the loopback address for that of the node."""

_LONGEST_FOLDER = 20
"""Characters of a folder in which the paths of Ray's sockets do not become longer than a system allows."""


@contextmanager
def private_settings() -> Iterator[dict[str, Any]]:
    """Yield the options of `ray.init` for a cluster of this user; its session is deleted at the end.

    Ray must have been imported.

    Raises:
        OSError: the folder or the token cannot be written.
    """
    protect_token()
    before = os.environ.get(_CLUSTERS)
    constants = sys.modules.get("ray._private.ray_constants")
    enabled = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    folder = tempfile.mkdtemp(prefix="sweet-ray-", dir=_temporary_folder())
    try:
        os.environ[_CLUSTERS] = "0"  # for the processes that Ray starts
        if constants is not None:
            constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]  # Ray read the variable at its import
        # Ray lets everybody write into its own folder; nobody else reaches it in this one.
        yield {"include_dashboard": False, "_temp_dir": f"{folder}/r"}
    finally:
        if constants is not None:
            constants.ENABLE_RAY_CLUSTER = enabled  # type: ignore[attr-defined]
        if before is None:
            os.environ.pop(_CLUSTERS, None)
        else:
            os.environ[_CLUSTERS] = before
        shutil.rmtree(folder, ignore_errors=True)


def check_private(ray: Any) -> None:
    """Check that the nodes of the cluster listen on the loopback interface.

    Raises:
        UsageError: they do not, as a later version of Ray may.
    """
    addresses = [str(row["NodeManagerAddress"]) for row in ray.nodes()]
    if not all(ipaddress.ip_address(address).is_loopback for address in addresses):
        raise UsageError(
            f"Ray {ray.__version__} listens on {', '.join(addresses)}, which other machines may reach.",
            where=option("ray", "local"),
            fix="pip install 'ray<2.61'",
        )


def _temporary_folder() -> str:
    """The folder for temporary files, unless its path is too long for sockets."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return folder if len(folder) <= _LONGEST_FOLDER else "/tmp"


def protect_token() -> None:
    """Make the file of the token, if Ray would make it, and let only this user read it.

    Raises:
        OSError: it cannot be written.
    """
    if any(map(os.environ.get, ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))) or not find_spec(
        "ray._private.authentication"
    ):
        return
    file = Path.home() / ".ray" / "auth_token"
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = file.with_name(f"auth_token-{secrets.token_hex(8)}")
        made.touch(mode=0o600, exist_ok=False)
        made.write_text(secrets.token_hex(32))
        try:
            with suppress(FileExistsError):  # another process was first
                os.link(made, file)
        finally:
            made.unlink()
    if file.stat().st_uid == os.getuid() and file.stat().st_mode & 0o077:
        file.chmod(0o600)
