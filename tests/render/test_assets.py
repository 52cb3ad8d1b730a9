"""The resources that pages may load: exactly the known addresses, and images of the requested size."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.render.assets import ASSETS, HOSTS, AssetStore, asset_at, picture_size, placeholder


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://cdn.jsdelivr.net/npm/tailwindcss@2.2.19/dist/tailwind.min.css", "tailwind-2.2.19.min.css"),
        ("https://unpkg.com/tailwindcss@^2/dist/tailwind.min.css", "tailwind-2.2.19.min.css"),
        ("https://cdnjs.cloudflare.com/ajax/libs/tailwindcss/2.2.19/tailwind.min.css", "tailwind-2.2.19.min.css"),
        ("https://cdn.tailwindcss.com", "tailwind-3.4.10.js"),
        ("https://cdn.tailwindcss.com/?plugins=forms", "tailwind-3.4.10.js"),
        ("https://cdn.tailwindcss.com/3.4.1", "tailwind-3.4.10.js"),
        ("https://cdn.jsdelivr.net/npm/tailwindcss@1.9.6/dist/tailwind.min.css", None),
        ("https://cdn.jsdelivr.net/npm/bootstrap@5/dist/css/bootstrap.min.css", None),
        ("https://evil.example/cdn.tailwindcss.com/", None),
        ("https://cdn.tailwindcss.com.evil.example/", None),
        ("https://cdn.tailwindcss.com@evil.example/", None),
    ],
)
def test_known_addresses(address: str, name: str | None) -> None:
    found = asset_at(address)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("address", "size"),
    [
        ("https://picsum.photos/id/48/300/200", (300, 200)),
        ("http://picsum.photos/300/200?grayscale", (300, 200)),
        ("https://picsum.photos/seed/garden/640/480.jpg", (640, 480)),
        ("https://picsum.photos/300", (300, 300)),
        ("https://picsum.photos/id/48/300/200-estate", None),
        ("https://picsum.photos/id/48/0/200", None),
        ("https://picsum.photos/9999/9999", None),
        ("https://example.invalid/300/200", None),
    ],
)
def test_sizes_of_pictures(address: str, size: tuple[int, int] | None) -> None:
    assert picture_size(address) == size


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.text(max_size=5))
def test_a_placeholder_has_the_requested_size(width: int, height: int, seed: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    with image.open(io.BytesIO(placeholder(width, height, seed))) as picture:
        picture.load()
        assert (picture.format, picture.size, picture.mode) == ("PNG", (width, height), "RGB")


def test_a_missing_asset_names_the_command_to_download_it(tmp_path: Path) -> None:
    store = AssetStore(tmp_path)
    with pytest.raises(UsageError) as caught:
        store.at("https://cdn.tailwindcss.com/")
    assert caught.value.fix == "sweet data assets"
    (tmp_path / ASSETS[1].name).write_text("something else")
    with pytest.raises(UsageError, match="sha256"):
        store.at("https://cdn.tailwindcss.com/")
    assert store.at("https://example.invalid/") is None


def test_every_address_has_its_host_in_the_policy() -> None:
    for asset in ASSETS:
        assert all(any(host.replace(".", r"\.") in pattern for host in HOSTS) for pattern in asset.addresses)
