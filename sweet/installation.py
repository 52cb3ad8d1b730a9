"""What is installed: the version and folder of the package, its distribution, and the command that installs an extra.

The distribution is not published, so it is installed from a checkout. Its former name, sweet-rl, is the name of an
unrelated package on PyPI whose module is called `sweet` too: no message may suggest installing that.
"""

from __future__ import annotations

VERSION = "0.1.0"

PACKAGE = __file__.removesuffix("installation.py").rstrip("/\\")
"""The folder of the imported package."""

DISTRIBUTION = "sweet-colbench"
"""The distribution that the package `sweet` belongs to."""

FORMER_DISTRIBUTION = "sweet-rl"
"""Its name in older checkouts, and the name of the unrelated package on PyPI."""


def install_command(extra: str = "") -> str:
    """Return the command that installs the program, with an optional extra of pyproject.toml such as `gpu`."""
    return f"pip install '.[{extra}]' in the checkout of sweet" if extra else "pip install . in the checkout of sweet"
