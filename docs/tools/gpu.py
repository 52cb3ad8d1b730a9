"""Write the tables of docs/gpu.md from the results of `python -m benchmarks.gpu` in benchmarks/results/gpu.

    python -m docs.tools.gpu [LINES …]

replaces the block between the page's markers; a test compares the page with the results. No number is typed by hand,
and what has no result is said to have none. The results in files of the lines that the command printed are first
written to that folder, of each stage the last one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from benchmarks.gpu.results import Result, Row, parse_result, read_result
from benchmarks.gpu.stages import STAGES
from docs.tools.commands import put_between
from sweet.errors import InputError, SweetError
from sweet.view.safe_markdown import prose, table

PAGE = Path("docs/gpu.md")
RESULTS = Path("benchmarks/results/gpu")
BEGIN = "<!-- results: python -m docs.tools.gpu -->"
END = "<!-- end of results -->"

Column = tuple[str, str, Callable[[float], str]]
"""The heading of a column, the name of its figure, and how that is written."""


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.2f}"


def _small(value: float) -> str:
    return f"{value:.1e}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


_SPEED: tuple[Column, ...] = (
    ("seconds", "seconds", _decimal),
    ("tokens/s", "tokens_per_s", _count),
    ("computed/s", "computed_per_s", _count),
    ("MFU", "mfu", _percent),
)
_AGAINST: tuple[Column, ...] = (
    ("MiB", "peak_mib", _count),
    ("times as fast", "speedup", _decimal),
    ("difference", "difference", _small),
)
_RATES: tuple[Column, ...] = (
    ("tokens/s, all at once", "batch_per_s", _count),
    ("one at a time", "single_per_s", _count),
    ("ratio", "ratio", _decimal),
)
_STUDY: tuple[Column, ...] = (
    ("success", "success", _percent),
    ("on a CPU", "committed_success", _percent),
    ("greedy", "greedy_success", _percent),
    ("seconds", "seconds", _count),
)
_TRAINING = (*_SPEED, *_AGAINST)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "machine": (("TFLOP/s", "tflops", _count), ("of the peak", "mfu", _percent), ("GB/s", "gb_per_s", _count)),
    "exact": (
        ("log-probability, whole trees", "whole_logprob_difference", _small),
        ("cut trees", "cut_logprob_difference", _small),
        ("plain", "plain_logprob_difference", _small),
        ("gradient, whole trees", "whole_gradient_difference", _small),
        ("cut trees", "cut_gradient_difference", _small),
        ("plain", "plain_gradient_difference", _small),
    ),
    "rank": _TRAINING,
    "train-135m": _TRAINING,
    "train-1b": _TRAINING,
    "train-4b": _TRAINING,
    "lora": (("trained weights", "trained", _count), *_TRAINING),
    "zero": (
        ("seconds", "seconds", _decimal),
        ("tokens/s", "tokens_per_s", _count),
        ("MiB of the device", "device_mib", _count),
        ("difference", "difference", _small),
    ),
    "engine": _RATES,
    "vllm": _RATES,
    "served": (
        ("tokens", "tokens", _count),
        ("difference", "difference", _small),
        ("of transformers", "plain_difference", _small),
        ("dialogues", "episodes", _count),
        ("calls of tools", "tool_calls", _count),
        ("turns with ids", "with_ids", _percent),
        ("success", "success", _percent),
        ("seconds", "seconds", _count),
    ),
    "demo": (
        ("success before", "before", _percent),
        ("after", "after", _percent),
        ("seconds", "seconds", _count),
    ),
    "micro": _STUDY,
    "smollm2": tuple(column for column in _STUDY if column[1] != "committed_success"),
}
"""The columns of each stage's table."""


def read(root: Path) -> dict[str, Result]:
    """Return the results of the repository at `root`, by stage.

    Raises:
        InputError: a file is no result of a stage, or one of tiny models or a CPU.
    """
    found = (_checked(read_result(path), path) for path in sorted((root / RESULTS).glob("*.json")))
    return {result.stage: result for result in found}


def keep(lines: Path, root: Path) -> list[str]:
    """Write the results that a file of lines has to the repository at `root`, and return their stages.

    Raises:
        InputError: a line is no result of a stage, or one of tiny models or a CPU.
    """
    found = {}
    for line in lines.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):  # the others are messages
            result = _checked(parse_result(line, lines), lines)
            found[result.stage] = result
    for stage, result in found.items():
        path = root / RESULTS / f"{stage}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return list(found)


def _checked(result: Result, path: Path) -> Result:
    if result.tiny or result.machine.get("device") in (None, "cpu") or result.stage not in STAGES:
        raise InputError("This is no result of a GPU.", path=path, fix="remove it")
    return result


def block(results: Mapping[str, Result]) -> str:
    """Return the Markdown between the markers."""
    return "\n\n".join(_parts(results)) + "\n"


def _parts(results: Mapping[str, Result]) -> Iterator[str]:
    if not results:
        yield (
            "**Nothing of this has run on a GPU yet.** Every stage has run with tiny models on a CPU, in a test: "
            "without the kernels of FlexAttention and FlashAttention, which a CPU lacks, and with a stand-in for vllm."
        )
    rows = [(f"`{name}`", STAGES[name].shows, _state(result)) for name, result in results.items()]
    if rows:
        yield table(("stage", "shows", "result"), rows, "---")
    if waiting := [f"`{name}`" for name in STAGES if name not in results]:
        yield f"Not yet run: {', '.join(waiting)}."
    for name in STAGES:
        if name in results:
            yield from _stage(results[name])


def _state(result: Result) -> str:
    return result.status if result.reason is None else f"{result.status}: {prose(result.reason)}"


def _stage(result: Result) -> Iterator[str]:
    columns = COLUMNS[result.stage]
    yield f"### {result.stage}"
    machine = [f"{name} {version}" for name, version in result.machine.items() if version and name != "device"]
    yield f"{prose(str(result.machine['device']))}; {prose(', '.join(machine))}."
    header = ("part", *(heading for heading, *_ in columns), "note")
    rows = [[prose(row.part), *(_cell(row, column) for column in columns), _note(row)] for row in result.rows]
    yield table(header, rows, "-" + "r" * len(columns) + "-")


def _cell(row: Row, column: Column) -> str:
    value: JsonValue = row.figures.get(column[1])
    return column[2](float(value)) if isinstance(value, int | float) else ""


def _note(row: Row) -> str:
    """What a reader must know: why a part has no figures, or not those of the kernel that was asked for."""
    if row.status != "done":
        return prose(f"{row.status}: {row.reason}")
    notes = ["exact" if row.figures["exact"] else "not exact"] if "exact" in row.figures else []
    notes += [str(row.figures[name]) for name in ("attention", "refused", "mfu_reason") if row.figures.get(name)]
    return prose("; ".join(notes))


def update(root: Path) -> None:
    """Write the tables into the page of the repository at `root`."""
    page = (root / PAGE).read_text(encoding="utf-8")
    (root / PAGE).write_text(put_between(page, BEGIN, END, block(read(root))), encoding="utf-8")


def main(files: Sequence[str]) -> int:
    try:
        for file in files:
            print(f"{file}: {', '.join(keep(Path(file), Path.cwd()))}")
        update(Path.cwd())
    except SweetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
