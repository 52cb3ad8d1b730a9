"""What is installed: the version and folder of the package, its distribution, the command that installs an extra, and
the versions of other packages.

The distribution is `sweet-colbench`. `sweet-rl` on PyPI is an unrelated package whose module is called `sweet` too: no
message may suggest installing that.
"""

from __future__ import annotations

import os

VERSION = "0.1.0"

PACKAGE = __file__.removesuffix("installation.py").rstrip("/\\")
"""The folder of the imported package."""

DISTRIBUTION = "sweet-colbench"
"""The distribution that the package `sweet` belongs to."""


def install_command(extra: str = "") -> str:
    """Return the command that installs the program, with an optional extra of pyproject.toml such as `gpu`: by its name
    if this one is installed so, otherwise from the checkout."""
    import importlib.metadata

    try:
        # What an installer writes about a folder or another address that it was given, and not about a name.
        origin = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        origin = "dir_info"
    if origin is None or "dir_info" not in origin:
        return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"
    return f"pip install '.[{extra}]' in the checkout of sweet" if extra else "pip install . in the checkout of sweet"


def child_environment(base: dict[str, str]) -> dict[str, str]:
    """Return the environment of a Python child process, from that of its parent: it imports the same package, nothing
    from the working directory, and prints little."""
    import site

    environment = dict(base)
    root = os.path.dirname(PACKAGE)  # noqa: PTH120  # importing the package does not import pathlib
    if root not in (*site.getsitepackages(), site.getusersitepackages()):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, base.get("PYTHONPATH"))))
    environment["PYTHONSAFEPATH"] = "1"
    environment.setdefault("PYTHONWARNINGS", "ignore")
    return environment


NOT_USED = {"docs", "test"}
"""Extras whose packages no command imports."""


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def unsuitable_versions() -> dict[str, str]:
    """Return the installed packages whose versions pyproject.toml does not allow, each with its version and those that
    are allowed. pip compares them only when it installs this program, and not when it installs another one afterwards.

    Without metadata, as in a checkout that is not installed, nothing is known and nothing returned.
    """
    import importlib.metadata

    from packaging.requirements import Requirement

    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return {}
    extras = ["", *(extra for extra in metadata.get_all("Provides-Extra", ()) if extra not in NOT_USED)]
    found = {}
    for requirement in map(Requirement, metadata.get_all("Requires-Dist", ())):
        marker, version = requirement.marker, installed_version(requirement.name)
        applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        if applies and version is not None and not requirement.specifier.contains(version, prereleases=True):
            found[requirement.name] = f"{requirement.name} {version} (allowed: {requirement.specifier})"
    return found
