"""The external resources that pages may load, served from this machine.

Pages of ColBench load Tailwind from a CDN and images from a placeholder service. The stylesheet and the script are in
the asset store, a folder that `sweet data assets` fills and verifies; an image is generated here, in the size that its
address names, in colours derived from its address. With the picture rule `photo`, the addresses of the service's image
48 show that photograph (`sweet.render.photo`). Nothing else is served, and nothing is downloaded while pages are
rendered.
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
from sweet.render.page import PLACEHOLDER
from sweet.render.photo import Photo

LARGEST_PICTURE = 5000
"""Maximum side of an image in pixels, as of the service."""


@dataclass(frozen=True)
class Asset:
    """A file of the asset store.

    Attributes:
        name: the name of the file in the store.
        sha256: the digest of its content.
        package: the npm package that contains it.
        member: the path of the file in that package.
        addresses: the addresses under which pages request it, HOST/PATH, as regular expressions.
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

_PICTURE = re.compile(r"picsum\.photos/(id/\d+/|seed/[^/]{1,80}/)?(\d{1,4})(?:/(\d{1,4}))?(?:\.(?:jpg|webp))?")

_PHOTO = re.compile(r"picsum\.photos/id/48/.*")

HOSTS = (
    "cdn.jsdelivr.net",
    "unpkg.com",
    "cdnjs.cloudflare.com",
    "cdn.tailwindcss.com",
    "picsum.photos",
)
"""All hosts of the addresses above."""


@dataclass(frozen=True)
class Served:
    """The content at an address."""

    body: bytes
    content_type: str


def asset_folder() -> Path:
    """Return the folder into which `sweet data assets` downloads the assets."""
    return data_folder() / "assets"


def asset_at(address: str) -> Asset | None:
    """Return the asset that pages request under this address, or None."""
    path = _host_and_path(address)
    return next((a for a in ASSETS if any(re.fullmatch(pattern, path) for pattern in a.addresses)), None)


class AssetStore:
    """The assets in a folder, each read and verified when it is first requested.

    Args:
        pictures: the picture rule (see `sweet.render.window`).
    """

    def __init__(self, folder: Path, pictures: str = PLACEHOLDER) -> None:
        self.folder, self.pictures = folder, pictures
        self._read: dict[str, Served] = {}
        self._photo: Photo | None = None

    def at(self, address: str) -> Served | None:
        """Return the content at an address; None if pages may not load it.

        Raises:
            UsageError: the asset or the photograph has not been downloaded, or has the wrong content.
        """
        if asset := asset_at(address):
            if asset.name not in self._read:
                self._read[asset.name] = Served(self.check(asset), asset.content_type)
            return self._read[asset.name]
        if size := picture_size(address):
            if self.pictures != PLACEHOLDER and _PHOTO.fullmatch(_host_and_path(address)):
                self._photo = self._photo or Photo(self.folder, self.pictures)
                return Served(self._photo.png(*size), "image/png")
            return Served(placeholder(*size, seed=_picture_name(address)), "image/png")
        return None

    def check(self, asset: Asset) -> bytes:
        """Return the verified content of an asset; raises what `at` raises."""
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


def _host_and_path(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.netloc}{parts.path}"


def picture_size(address: str) -> tuple[int, int] | None:
    """Return width and height in pixels if this is the address of an image, else None."""
    match = _PICTURE.fullmatch(_host_and_path(address))
    if match is None:
        return None
    width = int(match[2])
    height = int(match[3] or width)
    return (width, height) if 0 < width <= LARGEST_PICTURE and 0 < height <= LARGEST_PICTURE else None


def _picture_name(address: str) -> str:
    """Return what tells the image at an address from others: it has one look in all sizes."""
    match = _PICTURE.fullmatch(_host_and_path(address))
    return (match[1] if match else None) or ""


def placeholder(width: int, height: int, seed: str) -> bytes:
    """Return a PNG of this size: a vertical gradient between two colours derived from `seed`."""
    digest = hashlib.sha256(seed.encode()).digest()
    top, bottom = (tuple(64 + byte // 2 for byte in digest[i : i + 3]) for i in (0, 3))
    packer = zlib.compressobj(1)
    rows = []
    for y in range(height):
        share = y / max(1, height - 1)
        color = bytes(round(a + (b - a) * share) for a, b in zip(top, bottom, strict=True))
        # Filter 1 stores each pixel as its difference from the previous one, here 0.
        rows.append(packer.compress(b"\x01" + color + bytes(3 * (width - 1))))
    rows.append(packer.flush())
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", b"".join(rows)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
