"""The two options that change what pages look like: the size of the window, and what is shown for photographs.

The published code takes its screenshots in Firefox's default window, 1366 x 682, and loads the photographs of pages
from picsum.photos. Here the window is 1280 x 720 unless another is asked for, and nothing is loaded: a gradient of the
same size stands for a photograph (`placeholder`), or the one photograph that the protocol puts into every page,
picsum's image 48, is served from this machine (`photo`, see `sweet.render.photo`). Protocol and scorer `upstream`
choose the published window, and the photograph where it has been downloaded.

Both are recorded with dialogues and scores; the photograph with a digest of its file, as `photo@DIGEST`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator

from sweet.render.assets import asset_folder
from sweet.render.page import PLACEHOLDER, RenderSettings
from sweet.render.photo import FETCH_PHOTO, PHOTO_FILE, photo_rule

PUBLISHED = RenderSettings(width=1366, height=682)
"""The window of the published code: that of a headless Firefox for which none is set."""

NARROWEST, LARGEST = 320, 4096
"""Bounds of a window's sides in CSS px."""

PictureRule = Literal["placeholder", "photo"]


def window_size(text: str) -> tuple[int, int]:
    """Return width and height of a window that is written as WIDTHxHEIGHT, in CSS px.

    Raises:
        ValueError: it is written otherwise, or too small or too large.
    """
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text.strip().lower())
    if match is None:
        raise ValueError("a window is written as WIDTHxHEIGHT in pixels, such as 1366x682")
    width, height = int(match[1]), int(match[2])
    if not (NARROWEST <= width <= LARGEST and NARROWEST <= height <= LARGEST):
        raise ValueError(f"the sides of a window are between {NARROWEST} and {LARGEST} pixels")
    return width, height


def window_name(settings: RenderSettings) -> str:
    """Return the window as it is written: WIDTHxHEIGHT."""
    return f"{settings.width}x{settings.height}"


Window = Annotated[str, AfterValidator(lambda text: "{}x{}".format(*window_size(text)))]
"""A window in a configuration, as WIDTHxHEIGHT."""


def recorded_settings(window: str | None, pictures: str | None) -> RenderSettings:
    """Return the settings that dialogues or scores record; None is the default."""
    settings = RenderSettings() if window is None else RenderSettings(*window_size(window))
    return settings.showing(pictures or PLACEHOLDER)


def choose_settings(
    window: str | None, pictures: PictureRule | None, *, upstream: bool, say: Callable[[str], None]
) -> RenderSettings:
    """Return the settings of rendering.

    Args:
        window, pictures: the options; None is the default.
        upstream: whether the defaults are those of the published code.
        say: called with a line of text where the photograph would be the default and is missing.

    Raises:
        UsageError: the photograph was asked for and has not been downloaded.
    """
    default = PUBLISHED if upstream else RenderSettings()
    settings = default if window is None else RenderSettings(*window_size(window))
    if pictures == "placeholder" or (pictures is None and not upstream):
        return settings
    if pictures is None and not (asset_folder() / PHOTO_FILE).exists():
        say(f"Placeholders stand for the photographs of pages; {FETCH_PHOTO} fetches the published protocol's.")
        return settings
    return settings.showing(photo_rule(asset_folder()))
