"""Check the requirements of rendering before a stage begins, instead of failing at its first page."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sweet.render.assets import ASSETS, AssetStore, asset_folder
from sweet.render.firefox import find_firefox


def check_rendering(pages: Iterable[str], *, any_page: bool) -> None:
    """Check that there is a browser, and the assets that the pages load.

    Args:
        any_page: whether other pages will be rendered too, so that all assets are required.

    Raises:
        UsageError: something is missing; says how to install it.
    """
    find_firefox()
    store = AssetStore(asset_folder())
    required = list(ASSETS)
    if not any_page:
        texts = list(pages)
        patterns = {asset.name: re.compile("|".join(asset.addresses)) for asset in ASSETS}
        required = [asset for asset in ASSETS if any(map(patterns[asset.name].search, texts))]
    for asset in required:
        store.check(asset)
