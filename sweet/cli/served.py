"""The models of a server, for completion: asked once, in half a second, with no key, and silent about every failure."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

PATIENCE = 0.5
"""Seconds in all, the look-up of the host's name included."""
LARGEST = 2**20
"""Bytes of an answer that are read."""


def models(url: str) -> list[str]:
    """The ids that GET /models of an OpenAI-compatible server lists. Empty where anything is wrong."""
    found: list[str] = []
    asking = threading.Thread(target=_ask, args=(url, found), daemon=True)  # whoever is slow is left behind
    asking.start()
    asking.join(PATIENCE)
    return list(found)


def _ask(url: str, found: list[str]) -> None:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        kind = {"http": HTTPConnection, "https": HTTPSConnection}[parts.scheme]
        with closing(kind(parts.hostname or "", parts.port, timeout=PATIENCE)) as connection:
            connection.request("GET", f"{parts.path.rstrip('/') or '/v1'}/models")
            answer = connection.getresponse()
            if answer.status == 200:
                found.extend(str(model["id"]) for model in json.loads(answer.read(LARGEST))["data"])
    except Exception:  # while somebody types there is nobody to tell
        return
