"""Assets of any source are verified and stored in the user's data folder."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from sweet.datasets import page_assets as stage
from sweet.datasets.page_assets import AssetsConfig, Unavailable, from_network, run_data_assets
from sweet.errors import ServerError, SweetError
from sweet.render import assets
from sweet.render.photo import PHOTO_FILE, photo_rule
from sweet.stages.base import Silent
from tests.local_server import QuietHandler, serving

CONTENT = b"body { margin: 0 }"
ASSET = replace(assets.ASSETS[0], sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _one_small_asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(stage, "ASSETS", (ASSET,))


def refuses(asset: assets.Asset) -> bytes:
    raise Unavailable("nobody is there")


def wrong(asset: assets.Asset) -> bytes:
    return b"<html>Please log in</html>"


def right(asset: assets.Asset) -> bytes:
    return CONTENT


def test_the_first_source_that_gives_it_is_enough() -> None:
    result = run_data_assets(AssetsConfig(), Silent(), (refuses, wrong, right))
    assert result.metrics.as_json() == {"assets": 1, "fetched": 1}
    assert (result.run / ASSET.name).read_bytes() == CONTENT
    assert run_data_assets(AssetsConfig(), Silent(), (refuses,)).metrics.fetched == 0
    (result.run / ASSET.name).write_bytes(b"damaged")
    assert run_data_assets(AssetsConfig(), Silent(), (right,)).metrics.fetched == 1
    with pytest.raises(ServerError, match="nobody is there"):
        run_data_assets(AssetsConfig(force=True), Silent(), (refuses,))


def test_what_is_not_the_asset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SweetError, match="another sha256") as caught:
        run_data_assets(AssetsConfig(), Silent(), (wrong, refuses))
    assert caught.value.exit_code == 1
    assert not (tmp_path / "data" / "assets" / ASSET.name).exists()


def test_an_unreachable_network_is_reported() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        from_network("http://127.0.0.1:9")(ASSET)


class _Handler(QuietHandler):
    """Sends the photograph for one path, and a page for another."""

    def do_GET(self) -> None:
        picture = io.BytesIO()
        Image.new("RGB", (1500, 1000), "#446688").save(picture, "JPEG")
        bodies = {"/photo": picture.getvalue(), "/page": b"<html>Please log in</html>"}
        self.send(200 if self.path in bodies else 404, bodies.get(self.path, b""))


@pytest.fixture
def service() -> Iterator[str]:
    with serving(_Handler) as address:
        yield address


def test_the_photograph_is_fetched_once_and_only_if_it_is_asked_for(service: str) -> None:
    address = f"{service}/photo"
    folder = run_data_assets(AssetsConfig(), Silent(), (right,), address).run
    assert not (folder / PHOTO_FILE).exists()
    with pytest.raises(ServerError, match="answers 404"):
        run_data_assets(AssetsConfig(photo=True), Silent(), (right,), f"{service}/nothing")
    with pytest.raises(SweetError, match="not a JPEG"):
        run_data_assets(AssetsConfig(photo=True), Silent(), (right,), f"{service}/page")
    assert not (folder / PHOTO_FILE).exists()
    result = run_data_assets(AssetsConfig(photo=True), Silent(), (right,), address)
    assert result.metrics.as_json() == {"assets": 2, "fetched": 1}
    assert photo_rule(folder).startswith("photo@")
    assert run_data_assets(AssetsConfig(photo=True), Silent(), (right,), "http://127.0.0.1:9").metrics.fetched == 0
    (folder / PHOTO_FILE).write_bytes(b"damaged")
    assert run_data_assets(AssetsConfig(photo=True), Silent(), (right,), address).metrics.fetched == 1
    with pytest.raises(ServerError, match="cannot be reached"):
        run_data_assets(AssetsConfig(photo=True, force=True), Silent(), (right,), "http://127.0.0.1:9/photo")
