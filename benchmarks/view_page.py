"""Measure the page of dialogues that `sweet view --html` writes, in a real Firefox.

    python -m benchmarks.view_page [--run FOLDER] [--trajectories 15000] [--rounds 5]

Prints one JSON object. The run is made as for `benchmarks.cli_view`, in FOLDER, where it stays and is used again, or in
a temporary folder. The page is written once. Each round starts a new Firefox, which opens the page from the disk, whose
files are in the system's cache. Medians over the rounds:

write       seconds and peak memory of `sweet view RUN --html FILE`, a whole process, once.
megabytes   of the page; megabytes_900 of that of the first 900 dialogues, which shall be at most `most_megabytes`.
first_row   seconds from the navigation until the first row of the table is there, asked for every 0.02 s.
loaded      seconds until the browser has read the whole page.
sort        seconds from a click on a title until the rows are in their new order.
dialogue    seconds from a click on the last row until its dialogue is there: its part of the page is opened.
search      seconds from the words until all dialogues have been searched for them, 0.15 of which wait for more letters.
memory_mib  of all processes of the browser, shared memory counted for each: before the page, with the page, and after
            the search.
load        the system's load average over a minute, before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.cli_view import SWEET, fresh
from benchmarks.large_run import NEEDLE, NEEDLES, TRAJECTORIES, make
from sweet.runs.run import Run
from tests.results.real_page import LOOPBACK, RealPage, real_page

LARGEST = 2.0
"""Megabytes of the page of `SOME` dialogues at most."""
SOME = 900
ROW = "tr[data-number]"
COUNT = "document.querySelector('#count').textContent"


def measure(folder: Path | None = None, trajectories: int = TRAJECTORIES, rounds: int = 5) -> dict[str, Any]:
    """Run all measurements.

    Args:
        folder: the run, which is made if it does not exist; by default a temporary one.
    """
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        path = (folder or Path(temporary) / "run").resolve()
        run = Run.open(path) if path.exists() else make(path, trajectories)
        rows = run.find("rollouts", needed_by="the benchmark").rows or 0
        page, small = Path(temporary) / "dialogues.html", Path(temporary) / "some.html"
        view = (*SWEET, "view", str(run.path))
        fresh([*view, "--print", "--limit", "1"])  # builds the index
        write = fresh([*view, "--html", str(page)])
        fresh([*view, "--limit", str(SOME), "--html", str(small)])
        read = [opened(page, rows) for _ in range(rounds)]
        return {
            "trajectories": rows,
            "rounds": rounds,
            "write": _median([write]),
            "megabytes": round(page.stat().st_size / 1e6, 2),
            f"megabytes_{SOME}": round(small.stat().st_size / 1e6, 2),
            "most_megabytes": LARGEST,
            **_median(read),
            "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        }


def opened(page: Path, rows: int) -> dict[str, float]:
    """Measure the page, which has so many rows, in a new browser."""
    with real_page(LOOPBACK) as firefox:
        firefox.open("about:blank")
        memory = [firefox.memory]
        began = time.monotonic()
        firefox.open(page, wait="none")
        firefox.until(f"location.protocol === 'file:' && document.querySelector('{ROW}') !== null")
        first_row = time.monotonic() - began
        firefox.until("document.readyState === 'complete'")
        loaded = time.monotonic() - began
        memory.append(firefox.memory)
        top = f"document.querySelector('{ROW} td.id').innerText"
        firefox.value("document.querySelector('th.tokens button').click()")  # ascending
        order = firefox.value(top)
        sort = _seconds(firefox, "document.querySelector('th.tokens button').click()", f"{top} !== {order!r}")
        first = firefox.value(top)
        firefox.value("document.querySelector('#list').scrollTo(0, 1e9)")
        firefox.until(f"document.querySelector('{ROW}') !== null && {top} !== {first!r}")
        last = f"[...document.querySelectorAll('{ROW} a')].at(-1).click()"
        dialogue = _seconds(firefox, last, "document.querySelector('#dialogue details') !== null")
        words = f"""document.querySelector('#search').value = '"{NEEDLE}"',
            document.querySelector('#search').dispatchEvent(new Event('input', {{bubbles: true}}))"""
        hits = f"{-(-rows // NEEDLES):,} of "
        found = f"{COUNT}.startsWith({hits!r}) && !{COUNT}.includes('searched')"
        search = _seconds(firefox, words, found)
        memory.append(firefox.memory)
        seconds = {"first_row": first_row, "loaded": loaded, "sort": sort, "dialogue": dialogue, "search": search}
        return seconds | dict(zip(("memory_mib_before", "memory_mib", "memory_mib_searched"), memory, strict=True))


def _seconds(firefox: RealPage, act: str, condition: str) -> float:
    """Return the seconds from an action until a condition holds, by the clock of the page."""
    look = f"const look = () => {condition} ? done((performance.now() - since) / 1000) : requestAnimationFrame(look);"
    return float(firefox.value(f"new Promise((done) => {{ const since = performance.now(); {act}; {look} look(); }})"))


def _median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--trajectories", type=int, default=TRAJECTORIES)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.run, options.trajectories, options.rounds), indent=2))


if __name__ == "__main__":
    main()
