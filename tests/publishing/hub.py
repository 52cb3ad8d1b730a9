"""A stand-in of the model hub's interface for writing: repositories in memory, served over HTTP.

It answers the requests of the real client for creating a repository and for a commit whose files are all sent in the
commit itself, as the hub asks for small files.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.local_server import QuietHandler, serving

TOKEN = "hf_aSecretThatNobodyMayRead0123456789"


@dataclass
class Repository:
    """One repository: its files by path, the messages of its commits, and whether it is private."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


@dataclass
class WritableHub:
    """A running hub. Repositories are named `models/ORG/NAME` or `datasets/ORG/NAME`."""

    address: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    broken: bool = False
    full: bool = False
    """Whether it takes no commits any more."""
    strange: bytes | None = None
    """Answered to every request, as by another server at the address."""


@contextmanager
def serve_writable_hub() -> Iterator[WritableHub]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.requests.append(self.path)
            if hub.strange is not None:
                return self.send(200, hub.strange, {"Content-Type": "application/json"})
            if hub.broken:
                return self.answer(500, {"error": "out of order"})
            if self.path == "/api/validate-yaml":
                return self.answer(200, {"errors": [], "warnings": []})
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.answer(401, {"error": "Invalid user token."})
            if self.path == "/api/repos/create":
                return self.create(json.loads(body))
            found = re.fullmatch(r"/api/((?:models|datasets)/[^/]+/[^/]+)/(preupload|commit)/main", self.path)
            if found is None or found[1] not in hub.repositories:
                return self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            if found[2] == "preupload":
                names = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
                return self.answer(200, {"files": modes})
            if hub.full:
                return self.answer(403, {"error": "Private repository storage limit reached"})
            return self.commit(hub.repositories[found[1]], found[1], body)

        def create(self, asked: dict[str, Any]) -> None:
            name = f"{asked.get('type', 'model')}s/{asked['organization']}/{asked['name']}"
            if name in hub.repositories:
                return self.answer(409, {"error": "You already created this repo", "url": f"{hub.address}/{name}"})
            private = asked.get("private") or asked.get("visibility") == "private"
            hub.repositories[name] = Repository(bool(private))
            path = name.removeprefix("models/")
            return self.answer(200, {"url": f"{hub.address}/{path}", "name": path, "id": "1"})

        def commit(self, repository: Repository, name: str, body: bytes) -> None:
            for line in body.splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "header":
                    repository.messages.append(value["summary"])
                elif entry["key"] == "file":
                    repository.files[value["path"]] = base64.b64decode(value["content"])
            path = name.removeprefix("models/")
            found = {"commitUrl": f"{hub.address}/{path}/commit/{'0' * 40}", "commitOid": "0" * 40}
            self.answer(200, found | {"hookOutput": "", "success": True})

        def answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
            self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    with serving(Handler) as address:
        hub = WritableHub(address)
        yield hub
