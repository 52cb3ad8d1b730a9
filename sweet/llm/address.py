"""Parses and normalises server addresses."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from sweet.errors import UsageError


def base_url(text: str) -> str:
    """The base URL of an OpenAI-compatible API: `host:8000` and `http://host:8000/` become http://host:8000/v1.

    Raises:
        UsageError: the text is not an http address.
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.username or parts.query or parts.fragment or any(c.isspace() for c in full):
        raise UsageError(f"{text!r} is not a server address.", where=text, fix="write it like http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 selects a free one.

    Raises:
        UsageError: the address cannot be bound.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(
            f"{host}:{port} cannot be listened on: {error}.", where="--host, --port", fix="--port 0 selects a free one"
        ) from error


def url_of(host: str, port: int) -> str:
    """The URL at which a server that listens on `host` and `port` is reached from this machine."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}/v1"
