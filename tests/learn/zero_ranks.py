"""What `test_zero` starts as two ranks: trainings under every ZeRO stage, whose figures and weights rank 0 leaves.

One start for all, because importing is most of what it costs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sweet.learn.data import Objective
from sweet.learn.figures import Record
from sweet.learn.head import attach_head
from sweet.learn.loop import Loop, LoopSettings
from sweet.learn.zero import ZeroEngine, ZeroSettings, join
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.learn.test_loop import make_data

OBJECTIVES = {
    "critic": Objective(0.1, 0.01),
    "actor": Objective(0.1, 1.0, "none"),
    "rft": Objective(None, 1.0),
    "regression": Objective(0.1, 0.0, target="preference"),
}
# Nine examples in steps of four: the last of an epoch has one, which leaves the other rank without any.
SETTINGS = LoopSettings(lr=2e-3, epochs=2, batch=4, seed=1, token_budget=400)
CASES = [(ZeroSettings(stage), name) for stage in range(4) for name in ("critic", "actor", "regression")]
CASES += [(ZeroSettings(3), "rft"), (ZeroSettings(2, "optimizer"), "critic"), (ZeroSettings(3, "all"), "critic")]
RESUMED = [(stage, name) for stage in (2, 3) for name in ("critic", "regression")]
"""Stages that are stopped and resumed too: the optimizer is in parts, and then the weights as well."""
STOPPED_AT = 5


class _StoppedError(Exception):
    pass


def case_name(settings: ZeroSettings, objective: str) -> str:
    return f"{objective}-zero{settings.stage}-{settings.offload}"


def make_loop(tokenizer: Any, objective: str, records: list[Record], **more: Any) -> Loop:
    pool, examples = make_data(tokenizer, 12)
    model = build_model(len(tokenizer), tied=objective != "regression")
    if objective == "regression":
        attach_head(model)  # and the output layer has no gradient
    return Loop(
        model,
        pool.sequences,
        examples[:9],
        OBJECTIVES[objective],
        more.pop("settings", SETTINGS),
        digest="d",
        heldout=examples[9:] if objective != "rft" else (),
        on_step=more.pop("on_step", records.append),
        **more,
    )


def main(folder: Path) -> None:
    device = join("cpu")
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    engines: list[ZeroEngine] = []
    for settings, objective in CASES:

        def make_engine(model: Any, clip: float, settings: ZeroSettings = settings) -> ZeroEngine:
            engines.append(ZeroEngine(model, clip, settings, device))
            return engines[-1]

        name = case_name(settings, objective)
        records: list[Record] = []
        make_loop(tokenizer, objective, records, make_engine=make_engine).run()
        _leave(folder / name, records, engines[-1].weights())
        if settings.offload != "none" or (settings.stage, objective) not in RESUMED:
            continue

        def stop(record: Record) -> None:
            if record["step"] == STOPPED_AT:
                raise _StoppedError

        kept = {
            "settings": replace(SETTINGS, save_every=2),
            "checkpoint": folder / f"{name}-checkpoint" / "settled.json",
            "make_engine": make_engine,
        }
        try:
            make_loop(tokenizer, objective, [], on_step=stop, **kept).run()
        except _StoppedError:
            again: list[Record] = []
            make_loop(tokenizer, objective, again, **kept).run(resume=True)
            _leave(folder / f"{name}-resumed", again, engines[-1].weights())


def _leave(path: Path, records: list[Record], weights: dict[str, torch.Tensor] | None) -> None:
    if weights is not None:
        path.with_suffix(".json").write_text(json.dumps(records))
        torch.save(weights, path.with_suffix(".pt"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
