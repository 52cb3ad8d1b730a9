"""Addresses of servers, as people write them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from sweet.errors import UsageError


def base_url(text: str) -> str:
    """The address below which /chat/completions lies: `host:8000` and `http://host:8000/` become http://host:8000/v1.

    Raises:
        UsageError: the text is no http address.
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.username or parts.query or parts.fragment or any(c.isspace() for c in full):
        raise UsageError(
            f"{text!r} is not the address of a server.", where=text, fix="write it like http://127.0.0.1:8000/v1"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
