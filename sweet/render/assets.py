"""What pages may load from elsewhere, served from this machine.

Pages of ColBench load Tailwind from a content network and pictures from a service that gives any size. The stylesheet
and the script lie in the asset store, a folder that `sweet data assets` fills and checks; a picture is made here, in
the size that its address names, in colours that its address decides. Nothing else is served, and nothing is fetched
while pages are rendered.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sweet.errors import UsageError
from sweet.paths import data_folder

LARGEST_PICTURE = 5000
"""Pixels of a side; the service gives no larger ones."""


@dataclass(frozen=True)
class Asset:
    """A file of the asset store.

    Attributes:
        name: of the file in the store.
        sha256: of its content.
        package: where it comes from, as npm names it, and `member`, the file in that package.
        addresses: those under which pages ask for it, HOST/PATH, as regular expressions.
    """

    name: str
    sha256: str
    content_type: str
    package: str
    member: str
    addresses: tuple[str, ...]


_TAILWIND_2 = r"tailwindcss@(\^|~|%5E)?2(\.2(\.19|\.x)?|\.x)?/dist/tailwind(\.min)?\.css"

ASSETS = (
    Asset(
        name="tailwind-2.2.19.min.css",
        sha256="b6ad97402eddb903e7a5d7a73ee47a679204efbdda4521a391cbad9df509b932",
        content_type="text/css; charset=utf-8",
        package="tailwindcss@2.2.19",
        member="dist/tailwind.min.css",
        addresses=(
            rf"cdn\.jsdelivr\.net/npm/{_TAILWIND_2}",
            rf"unpkg\.com/{_TAILWIND_2}",
            r"cdnjs\.cloudflare\.com/ajax/libs/tailwindcss/2\.2\.19/tailwind(\.min)?\.css",
        ),
    ),
    Asset(
        name="tailwind-3.4.10.js",
        sha256="2f0570ef81afaa4194fa4ffe80fb291971f0ce27cecd0a1100fdcb4865703364",
        content_type="text/javascript; charset=utf-8",
        package="tailwindcss-cdn@3.4.10",
        member="tailwindcss.js",
        addresses=(
            r"cdn\.tailwindcss\.com/?",
            r"cdn\.tailwindcss\.com/3(\.\d+){0,2}/?",
            r"(cdn\.jsdelivr\.net/npm|unpkg\.com)/tailwindcss-cdn@3[.0-9]*/tailwindcss\.js",
        ),
    ),
)

_PICTURE = re.compile(r"picsum\.photos/(?:id/\d+/|seed/[^/]{1,80}/)?(\d{1,4})(?:/(\d{1,4}))?(?:\.(?:jpg|webp))?")

HOSTS = (
    "cdn.jsdelivr.net",
    "unpkg.com",
    "cdnjs.cloudflare.com",
    "cdn.tailwindcss.com",
    "picsum.photos",
)
"""Every host of the addresses above."""


@dataclass(frozen=True)
class Served:
    """What an address holds."""

    body: bytes
    content_type: str


def asset_folder() -> Path:
    """Where `sweet data assets` puts the assets."""
    return data_folder() / "assets"


def asset_at(address: str) -> Asset | None:
    """The asset that a page asks for under this address."""
    place = _place(address)
    return next((a for a in ASSETS if any(re.fullmatch(pattern, place) for pattern in a.addresses)), None)


class AssetStore:
    """The assets of a folder, each read and checked when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Served] = {}

    def at(self, address: str) -> Served | None:
        """What lies at an address; None where pages may not load it.

        Raises:
            UsageError: the asset has not been fetched, or is not what it should be.
        """
        if asset := asset_at(address):
            if asset.name not in self._read:
                self._read[asset.name] = Served(self.check(asset), asset.content_type)
            return self._read[asset.name]
        if size := picture_size(address):
            return Served(placeholder(*size, seed=_place(address)), "image/png")
        return None

    def check(self, asset: Asset) -> bytes:
        """Its content. Errors as of `at`."""
        path = self.folder / asset.name
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise UsageError(
                f"A page loads {asset.package}, which has not been fetched.", where=path, fix="sweet data assets"
            ) from error
        if hashlib.sha256(content).hexdigest() != asset.sha256:
            raise UsageError(
                f"This is not {asset.package}: its sha256 differs.", where=path, fix="sweet data assets --force"
            )
        return content


def _place(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.netloc}{parts.path}"


def picture_size(address: str) -> tuple[int, int] | None:
    """Width and height in pixels that a picture's address names."""
    found = _PICTURE.fullmatch(_place(address))
    if found is None:
        return None
    width = int(found[1])
    height = int(found[2] or width)
    return (width, height) if 0 < width <= LARGEST_PICTURE and 0 < height <= LARGEST_PICTURE else None


def placeholder(width: int, height: int, seed: str) -> bytes:
    """A PNG of this size: a vertical run between two colours that `seed` decides."""
    digest = hashlib.sha256(seed.encode()).digest()
    top, bottom = (tuple(64 + byte // 2 for byte in digest[i : i + 3]) for i in (0, 3))
    packer = zlib.compressobj(1)
    rows = []
    for y in range(height):
        share = y / max(1, height - 1)
        color = bytes(round(a + (b - a) * share) for a, b in zip(top, bottom, strict=True))
        # Filter 1: each pixel is told as its difference from the one before, which is none.
        rows.append(packer.compress(b"\x01" + color + bytes(3 * (width - 1))))
    rows.append(packer.flush())
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", b"".join(rows)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
