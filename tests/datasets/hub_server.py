"""A local model hub that serves a folder: the part of the interface that streaming a dataset requires."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.local_server import QuietHandler, serving

DATASET = "owner/name"
REVISION = "0123456789" * 4


@dataclass
class Hub:
    """A running hub. `sent` counts the bytes of the served files."""

    address: str
    sent: int = 0


@contextmanager
def serve_hub(folder: Path) -> Iterator[Hub]:
    """Serve the dataset in `folder`."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            about, tree = f"/api/datasets/{DATASET}", rf"/api/datasets/{DATASET}/tree/[^/]+/?(.*)"
            if found := re.fullmatch(rf"/datasets/{DATASET}/resolve/[^/]+/(.+)", path):
                self.send_file(folder / found[1])
            elif re.fullmatch(rf"{about}(/revision/[^/]+)?", path):
                self.send_json({"_id": "1", "id": DATASET, "sha": REVISION, "siblings": [], "tags": []})
            elif (found := re.fullmatch(tree, path)) and (folder / found[1]).is_dir():
                self.send_json([entry(file) for file in sorted((folder / found[1]).iterdir())])
            else:
                self.send(404, b"", {"X-Error-Code": "EntryNotFound" if DATASET in path else "RepoNotFound"})

        do_HEAD = do_GET

        def send_file(self, file: Path) -> None:
            if not file.is_file():
                return self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
            content = file.read_bytes()
            headers = {"ETag": f'"{len(content)}"', "X-Repo-Commit": REVISION, "Accept-Ranges": "bytes"}
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                return self.send(200, content, headers)
            start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            return self.send(206, content[start : end + 1], headers)

        def send_json(self, value: Any) -> None:
            self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            hub.sent += len(body) if self.command == "GET" else 0
            super().send(status, body, headers)

    def entry(file: Path) -> dict[str, Any]:
        kind = "directory" if file.is_dir() else "file"
        size = file.stat().st_size if file.is_file() else 0
        return {"type": kind, "path": str(file.relative_to(folder)), "size": size, "oid": "0" * 40}

    with serving(Handler) as address:
        hub = Hub(address)
        yield hub
