"""What rendering needs on this machine, looked at before a stage begins and not at its first page."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sweet.render.assets import ASSETS, AssetStore, asset_folder
from sweet.render.firefox import find_firefox
from sweet.render.serving import certificate


def check_rendering(pages: Iterable[str], *, any_page: bool) -> None:
    """Look for the browser, and for the assets that these pages name.

    Args:
        any_page: other pages are to be rendered too, whose author may load any asset: all must be there.

    Raises:
        UsageError: something is missing; says what and how it comes here.
    """
    find_firefox()
    certificate()
    store = AssetStore(asset_folder())
    wanted = list(ASSETS) if any_page else []
    if not any_page:
        named = {asset.name: re.compile("|".join(asset.addresses)) for asset in ASSETS}
        texts = list(pages)
        wanted = [asset for asset in ASSETS if any(named[asset.name].search(text) for text in texts)]
    for asset in wanted:
        store.check(asset)
