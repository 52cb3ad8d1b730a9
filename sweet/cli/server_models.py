"""Lists the models of a server for completion: one request without a key, half a second at most, errors ignored."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

TIMEOUT = 0.5
"""Seconds in total, including the look-up of the host's name."""
MAX_RESPONSE = 2**20
"""Bytes of a response that are read."""


def models(url: str) -> list[str]:
    """Return the ids that GET /models of an OpenAI-compatible server lists; an empty list after any error."""
    found: list[str] = []
    request = threading.Thread(target=_request, args=(url, found), daemon=True)  # a slow one is abandoned
    request.start()
    request.join(TIMEOUT)
    return list(found)


def _request(url: str, found: list[str]) -> None:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        kind = {"http": HTTPConnection, "https": HTTPSConnection}[parts.scheme]
        with closing(kind(parts.hostname or "", parts.port, timeout=TIMEOUT)) as connection:
            connection.request("GET", f"{parts.path.rstrip('/') or '/v1'}/models")
            response = connection.getresponse()
            if response.status == 200:
                found.extend(str(model["id"]) for model in json.loads(response.read(MAX_RESPONSE))["data"])
    except Exception:  # the user is typing: there is no place to report it
        return
