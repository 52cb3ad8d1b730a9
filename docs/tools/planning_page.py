"""Write the tables of docs/planning.md from `docs.tools.planning`.

    python -m docs.tools.planning_page

replaces the block between the page's markers; a test compares the page with the plan. No number is typed by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docs.tools.planning import DEVICES, MEASURED, SCALES, plan, read_measured
from sweet.cli.generated import put_between
from sweet.learn.batches import GPU_TOKENS
from sweet.units import format_bytes
from sweet.view.safe_markdown import table

PAGE = Path("docs/planning.md")
BEGIN = "<!-- plan: python -m docs.tools.planning_page -->"
END = "<!-- end of plan -->"

WHAT = {
    "training step": "memory of a GPU in training (bytes)",
    "ranking critic": "memory of a GPU in `rank`: critic and reference (bytes)",
    "rollout hours": "dialogues on the servers of one node (hours)",
    "core hours": "tests or browsers on the cores of one node (hours)",
    "training hours": "the longer training, on as many GPUs as a step has pairs (hours)",
    "network hours": "the longer training, traffic of ZeRO 3 between nodes (hours)",
    "ranking hours": "the critic of `rank` on one GPU (hours)",
    "training pool": "token ids of the critic's data in the ranks of a node (bytes)",
    "dialogues in memory": "dialogues in the process of `rank` or a training (bytes)",
    "candidates in memory": "candidates in the process of `pair` (bytes)",
    "disk": "rollouts, candidates, pairs and screenshots on the disk (bytes)",
    "files": "files of screenshots",
}
"""Descriptions of the limits."""

KINDS = ("code", "html")


def block(plan_data: dict[str, Any]) -> str:
    """Return the Markdown between the markers."""
    return "\n\n".join(_parts(plan_data)) + "\n"


def _parts(plan_data: dict[str, Any]) -> Iterator[str]:
    yield "### Inputs"
    inputs = [(name, _number(one["value"]), one["unit"], one["basis"]) for name, one in plan_data["inputs"].items()]
    yield table(("input", "", "unit", "basis"), inputs, "-r--")
    yield "### Computation"
    for kind in KINDS:
        yield table(
            (kind, "read", "written", "trained", "FLOPs, 8B", "GPU-hours, 8B", "FLOPs, 70B", "GPU-hours, 70B"),
            _work(plan_data["work"][kind]),
        )
    yield "Tokens of all dialogues; GPU-hours of an H100 at the utilizations above."
    yield "### Memory of a GPU"
    yield table(("per GPU", "8B", "70B"), _memory(plan_data["memory"]))
    yield "### Data"
    yield table(("", *(f"{kind} ×{scale}" for kind in KINDS for scale in SCALES)), _data(plan_data))
    yield table(
        ("bytes per row", "planned, code", "planned, html", "measured, code", "measured, html"), _rows(plan_data)
    )
    yield (
        "Planned rows are written by the program at the sizes above; measured ones are from small runs of micro tasks "
        f"and generated pages ([{MEASURED}](../{MEASURED})), on {plan_data['measured']['cores']} shared cores."
    )
    yield "### Limits"
    for kind in KINDS:
        header = (kind, "limit", "8B: ×1, ×10, ×100", "full at", "70B: ×1, ×10, ×100", "full at")
        yield table(header, _limits(plan_data["limits"][kind]))
    yield "Full at: the size that reaches the limit; bold up to a hundred times. Limits that each size exceeds:"
    yield table(("", *(f"×{scale}" for scale in SCALES)), _full_first(plan_data["limits"]), "----")


def _work(models: dict[str, Any]) -> Iterator[list[str]]:
    small, large = models["8B"], models["70B"]
    tokens = ("tokens_read", "tokens_written", "tokens_trained")
    for stage, one in small.items():
        other = [cell for of in (one, large[stage]) for cell in (_power(of["flops"]), f"{of['gpu_hours']:,.1f}")]
        yield [stage, *(_number(one[name]) for name in tokens), *other]
    sums = [(sum(s["flops"] for s in of.values()), sum(s["gpu_hours"] for s in of.values())) for of in (small, large)]
    yield ["all", "", "", "", *(cell for flops, hours in sums for cell in (_power(flops), f"{hours:,.1f}"))]


def _memory(models: dict[str, Any]) -> Iterator[list[str]]:
    both = [models["8B"], models["70B"]]

    def line(name: str, key: str) -> list[str]:
        return [name, *(format_bytes(of[key]) for of in both)]

    yield line("serving: weights in bf16", "serve")
    yield [
        "serving: GPUs of a server, with half of their memory for the KV cache",
        *(str(m["serve_devices"]) for m in both),
    ]
    yield line("serving: KV cache of a token", "kept_token")
    yield line("training: weights, gradients, AdamW in fp32, divided by the GPUs", "states")
    yield line("training: bf16 copies of the weights of a layer and of the output, on each GPU", "casts")
    yield line(f"training: activations of {GPU_TOKENS:,} tokens, with gradient checkpointing", "activations")
    yield line("training: buffers for weights of other GPUs and for a bucket of gradients", "buffers")
    fewest = [str(one["devices"] or "none fits") for one in both]
    yield [f"training: fewest GPUs of {DEVICES[0]} to {DEVICES[-1]} under ZeRO 3", *fewest]
    yield line(f"training: each of these GPUs, or of {DEVICES[-1]}", "of_one")
    yield line("training: a checkpoint on the disk", "checkpoint")
    yield line("training: traffic of each GPU per step", "step_traffic")
    for kind in KINDS:
        name = f"training: the same for the longer training of {kind}"
        yield [name, *(f"{_number(of['traffic'][kind])}B" for of in both)]
    yield line("ranking: critic and reference in bf16, on one GPU", "rank")


def _data(plan_data: dict[str, Any]) -> Iterator[list[str]]:
    each = [plan_data["data"][kind][str(scale)] for kind in KINDS for scale in SCALES]
    for name in ("rollouts", "candidates", "pairs"):
        yield [name, *(format_bytes(of[name]) for of in each)]
    yield ["screenshots", *(_number(of["screenshots"]) for of in each)]
    yield ["bytes of screenshots", *(format_bytes(of["screenshot_bytes"]) for of in each)]
    yield ["texts and pictures sent to servers", *(format_bytes(of["sent"]) for of in each)]
    yield ["core-hours of tests or browsers", *(f"{of['core_hours']:,.1f}" for of in each)]


def _rows(plan_data: dict[str, Any]) -> Iterator[list[str]]:
    measured = plan_data["measured"]["rows"]
    for name in ("rollouts", "scores", "preferences", "candidates", "pairs"):
        planned = [plan_data["rows"][kind].get(name) for kind in KINDS]
        seen = [measured[kind].get(name) for kind in KINDS]
        yield [name, *map(_bytes, planned), *(_bytes(one and one["bytes"] / one["rows"]) for one in seen)]


def _limits(models: dict[str, Any]) -> Iterator[list[str]]:
    for what, words in WHAT.items():
        both = [models[name][what] for name in ("8B", "70B")]
        cells = [cell for one in both for cell in (_values(one["values"].values()), _full(one["full_at"]))]
        yield [words, _number(both[0]["limit"]), *cells]


def _full_first(plan_data: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the limits that each scale exceeds and no smaller one does, in the order of `full_at`."""
    for kind in KINDS:
        for name, limits in plan_data[kind].items():
            first = sorted((one["full_at"], what) for what, one in limits.items() if one["breaks_at"])
            full = {scale: [WHAT[what] for _, what in first if limits[what]["breaks_at"] == scale] for scale in SCALES}
            yield [f"{kind}, {name}", *("; ".join(full[scale]) or "no further limit" for scale in SCALES)]


def _values(values: Iterable[float]) -> str:
    shown = [_number(value) for value in values]
    return shown[0] if len(set(shown)) == 1 else ", ".join(shown)


def _full(scale: float | None) -> str:
    if scale is None:
        return "–"
    shown = "at once" if scale == 1 else f"×{scale:,.0f}"
    return f"**{shown}**" if scale <= SCALES[-1] else shown


def _bytes(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _power(value: float) -> str:
    return f"{value:.1e}".replace("e+", "e")


def _number(value: float) -> str:
    """Format a number, from millions on with the suffixes M, G, T, P."""
    if value and abs(value) < 10:
        return f"{value:.2g}"
    for power, word in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.3g} {word}"
    return f"{value:,.0f}"


def update(root: Path) -> None:
    """Write the tables into the page of the repository at `root`."""
    page = (root / PAGE).read_text(encoding="utf-8")
    (root / PAGE).write_text(put_between(page, BEGIN, END, block(plan(read_measured(root)))), encoding="utf-8")


if __name__ == "__main__":
    update(Path.cwd())
