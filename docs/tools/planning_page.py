"""The tables of docs/planning.md, from `docs.tools.planning`.

    python -m docs.tools.planning_page

writes what stands between the page's markers; a test compares the page with the plan. No figure is typed by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docs.tools.planning import DEVICES, MEASURED, SCALES, plan, read_measured
from sweet.cli.generated import put_between
from sweet.learn.batches import GPU_TOKENS
from sweet.view.safe_markdown import table
from sweet.view.units import format_bytes

PAGE = Path("docs/planning.md")
BEGIN = "<!-- plan: python -m docs.tools.planning_page -->"
END = "<!-- end of plan -->"

WHAT = {
    "training step": "a GPU's memory in training (bytes)",
    "ranking critic": "a GPU's memory in `rank`: critic and reference (bytes)",
    "rollout hours": "dialogues on the servers of one node (hours)",
    "core hours": "tests or browsers on the cores of one node (hours)",
    "training hours": "the longer training, computing on as many GPUs as a step has pairs (hours)",
    "network hours": "the longer training, ZeRO 3's traffic between nodes (hours)",
    "ranking hours": "the critic of `rank` on one GPU (hours)",
    "training pool": "token ids of the critic's data in the ranks of a node (bytes)",
    "dialogues in memory": "dialogues in the process of `rank` or a training (bytes)",
    "candidates in memory": "candidates in the process of `pair` (bytes)",
    "disk": "rollouts, candidates, pairs and screenshots on the disk (bytes)",
    "files": "files of screenshots",
}
"""What each limit of the plan is, in words."""

KINDS = ("code", "html")


def block(found: dict[str, Any]) -> str:
    """What stands between the markers, as Markdown."""
    return "\n\n".join(_parts(found)) + "\n"


def _parts(found: dict[str, Any]) -> Iterator[str]:
    yield "### What is put in"
    inputs = [(name, _number(one["value"]), one["unit"], one["basis"]) for name, one in found["inputs"].items()]
    yield table(("input", "", "unit", "basis"), inputs, "-r--")
    yield "### How much is computed"
    for kind in KINDS:
        yield table(
            (kind, "read", "written", "trained", "FLOPs, 8B", "GPU-hours, 8B", "FLOPs, 70B", "GPU-hours, 70B"),
            _work(found["work"][kind]),
        )
    yield "Tokens of all dialogues; GPU-hours of an H100 at the shares of its peak above."
    yield "### What runs where"
    yield table(("of one GPU", "8B", "70B"), _memory(found["memory"]))
    yield "### How much is written and moved"
    yield table(("", *(f"{kind} ×{scale}" for kind in KINDS for scale in SCALES)), _data(found))
    yield table(("bytes a row", "planned, code", "planned, html", "measured, code", "measured, html"), _rows(found))
    yield (
        f"Planned rows are written by the program at the sizes above; measured ones are of small runs, micro tasks and "
        f"generated pages ([{MEASURED}](../{MEASURED})), on {found['measured']['cores']} cores that others used too."
    )
    yield "### What breaks first"
    for kind in KINDS:
        header = (kind, "limit", "8B: ×1, ×10, ×100", "full at", "70B: ×1, ×10, ×100", "full at")
        yield table(header, _limits(found["limits"][kind]))
    yield "Full at: the size at which the limit is reached; bold up to a hundred times. What is full at each size:"
    yield table(("", *(f"×{scale}" for scale in SCALES)), _full_first(found["limits"]), "----")


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
    yield ["serving: GPUs of a server, half their memory kept for dialogues", *(str(m["serve_devices"]) for m in both)]
    yield line("serving: what a token of a dialogue keeps", "kept_token")
    yield line("training: weights, gradients, AdamW in fp32, divided by the GPUs", "states")
    yield line("training: bf16 copies of a layer's and the output's weights, on each GPU", "casts")
    yield line(f"training: activations of {GPU_TOKENS:,} tokens, layers computed again", "activations")
    yield line("training: what is fetched from other GPUs, and a bucket of gradients", "buffers")
    fewest = [str(one["devices"] or "none fits") for one in both]
    yield [f"training: fewest GPUs of {DEVICES[0]} to {DEVICES[-1]} under ZeRO 3", *fewest]
    yield line(f"training: of one GPU then, or of {DEVICES[-1]}", "of_one")
    yield line("training: one checkpoint on the disk", "checkpoint")
    yield line("training: to and from each GPU in a step", "step_traffic")
    for kind in KINDS:
        name = f"training: the same in the longer one of {kind}"
        yield [name, *(f"{_number(of['traffic'][kind])}B" for of in both)]
    yield line("ranking: critic and reference in bf16, on one GPU", "rank")


def _data(found: dict[str, Any]) -> Iterator[list[str]]:
    each = [found["data"][kind][str(scale)] for kind in KINDS for scale in SCALES]
    for name in ("rollouts", "candidates", "pairs"):
        yield [name, *(format_bytes(of[name]) for of in each)]
    yield ["screenshots", *(_number(of["screenshots"]) for of in each)]
    yield ["bytes of screenshots", *(format_bytes(of["screenshot_bytes"]) for of in each)]
    yield ["texts and pictures sent to servers", *(format_bytes(of["sent"]) for of in each)]
    yield ["core-hours of tests or browsers", *(f"{of['core_hours']:,.1f}" for of in each)]


def _rows(found: dict[str, Any]) -> Iterator[list[str]]:
    measured = found["measured"]["rows"]
    for name in ("rollouts", "scores", "preferences", "candidates", "pairs"):
        planned = [found["rows"][kind].get(name) for kind in KINDS]
        seen = [measured[kind].get(name) for kind in KINDS]
        yield [name, *map(_bytes, planned), *(_bytes(one and one["bytes"] / one["rows"]) for one in seen)]


def _limits(models: dict[str, Any]) -> Iterator[list[str]]:
    for what, words in WHAT.items():
        both = [models[name][what] for name in ("8B", "70B")]
        cells = [cell for one in both for cell in (_values(one["values"].values()), _full(one["full_at"]))]
        yield [words, _number(both[0]["limit"]), *cells]


def _full_first(found: dict[str, Any]) -> Iterator[list[str]]:
    """What breaks at each scale and at none before, that which is full first standing first."""
    for kind in KINDS:
        for name, limits in found[kind].items():
            first = sorted((one["full_at"], what) for what, one in limits.items() if one["breaks_at"])
            full = {scale: [WHAT[what] for _, what in first if limits[what]["breaks_at"] == scale] for scale in SCALES}
            yield [f"{kind}, {name}", *("; ".join(full[scale]) or "nothing more" for scale in SCALES)]


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
    """Thousands as they are, more in the words M, G, T, P."""
    if value and abs(value) < 10:
        return f"{value:.2g}"
    for power, word in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.3g} {word}"
    return f"{value:,.0f}"


def update(root: Path) -> None:
    """Write the tables into the page under the repository's root."""
    page = (root / PAGE).read_text(encoding="utf-8")
    (root / PAGE).write_text(put_between(page, BEGIN, END, block(plan(read_measured(root)))), encoding="utf-8")


if __name__ == "__main__":
    update(Path.cwd())
