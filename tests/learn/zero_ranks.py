"""The program that `test_zero` starts on two ranks: trainings under every ZeRO stage. Rank 0 writes their metrics and
weights.

All trainings run in one start, because imports take most of the time. The last one is a job for `sweet.learn.worker`.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweet import collector

with collector.paused():
    import torch

    from sweet.learn import logprobs
    from sweet.learn.components import Example, Objective
    from sweet.learn.estimate import ZeroSettings
    from sweet.learn.head import attach_head
    from sweet.learn.job import Job
    from sweet.learn.loop import Loop, LoopSettings
    from sweet.learn.lora import LoraSettings, add_lora
    from sweet.learn.losses import Reference
    from sweet.learn.metrics import Record
    from sweet.learn.recompute import recompute_layers
    from sweet.learn.vision_processor import VisionProcessor, vision_processor
    from sweet.learn.worker import run
    from sweet.learn.zero import ZeroEngine, init_ranks, partitioned_loading
    from sweet.llm.pretrained import load_model
    from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
    from tests.learn.test_loop import make_data
    from tests.learn.weighted import BOTH, weighted_data

OBJECTIVES = {
    "actor": Objective(0.1, 1.0, "none"),
    "rft": Objective(None, 1.0),
    "regression": Objective(0.1, 0.0, target="preference"),
    "tokens": BOTH,
}
OBJECTIVES |= dict.fromkeys(("sighted", "sighted-lora"), OBJECTIVES["regression"])
CRITIC = Objective(0.1, 0.01)
TRAINED, HELDOUT = 5, 3
"""Examples. The last step of an epoch, of one example, leaves the other rank without any."""
MORE = {"regression": 9}
"""In `regression` the gradient of the head's bias has to be more than rounding. With five examples of `tokens`, which
are of four kinds, the ranks of the first step learn from different scores."""
SETTINGS = LoopSettings(lr=2e-3, epochs=1, batch=4, seed=1, token_budget=400)
TWO_EPOCHS = {"critic", "lora", "best", "regression"}
CASES = [(ZeroSettings(stage), "critic") for stage in (2, 3)] + [(ZeroSettings(2), "lora"), (ZeroSettings(1), "actor")]
CASES += [(ZeroSettings(3), "regression"), (ZeroSettings(3), "tokens"), (ZeroSettings(3), "rft")]
CASES += [(ZeroSettings(2, "optimizer"), "critic"), (ZeroSettings(3, "all"), "critic")]
CASES += [(ZeroSettings(3), name) for name in ("best", "chunked")]
CASES += [(ZeroSettings(0), "sighted"), (ZeroSettings(3), "sighted-lora")]
RECOMPUTED = {"lora", "regression"}
"""What is trained with its layers recomputed; the job is too."""
LOADED = "best"
"""The training whose model is loaded partitioned; the others' are built on each rank."""
RESUMED = [(2, "critic"), (2, "lora"), (3, "critic"), (3, "sighted-lora")]
"""Stages that are also resumed: with a partitioned optimizer, and with partitioned weights."""
EPOCH = 2
"""Steps of an epoch of those. The checkpoint of the last step but one is copied before the next is written: the state
of a training that was interrupted in the middle of an epoch."""
MODEL = "model"
"""The folder of the model that is loaded partitioned."""
JOB = "job"
"""The folder of the training `sighted` as a job, with ZeRO 3."""


def settings_of(objective: str) -> LoopSettings:
    return replace(SETTINGS, epochs=2) if objective in TWO_EPOCHS else SETTINGS


def last_step(objective: str) -> int:
    """The last step of a training that is resumed."""
    return EPOCH * settings_of(objective).epochs


def case_name(settings: ZeroSettings, objective: str) -> str:
    return f"{objective}-zero{settings.stage}-{settings.offload}"


USUAL_NUMBERS, CHUNK = logprobs.CHUNK_NUMBERS, 16
"""Positions whose logits are computed at a time in the case `chunked`, so that the ranks have unequal numbers of
chunks."""


class Falling(Loop):
    """Every epoch is worse than the previous one."""

    def evaluate(self, examples: Sequence[Example], reference: Reference | None) -> float:
        super().evaluate(examples, reference)
        return 1 - self._epoch / 10


def make_loop(tokenizer: Any, name: str, records: list[Record], folder: Path, **more: Any) -> Loop:
    """The training of a case: `lora` trains an adapter, `best` keeps the first of its two epochs, and `sighted` is that
    of the job in `folder`, a critic that sees pages."""
    sighted, trained = name.startswith("sighted"), MORE.get(name, TRAINED)
    if sighted:
        job = Job.read(folder / JOB)
        sequences, examples = job.pool, [*job.examples, *job.heldout]
        model = load_model(job.start.base, "cpu", "float32")
    else:
        pool, examples = (weighted_data if name == "tokens" else make_data)(tokenizer, trained + HELDOUT)
        sequences = pool.sequences
        model = more.pop("model", None) or build_model(len(tokenizer), tied=name != "regression")
    settings = replace(settings_of(name), save_every=more.pop("save_every", None))
    if name.endswith("lora"):
        add_lora(model, LoraSettings(4, 8))
        settings = replace(settings, lr=2e-2)
    if name == "best":
        settings = replace(settings, keep_best=True)
    if name == "regression" or sighted:
        attach_head(model)  # and in `regression` the output layer has no gradient
    if more.pop("recompute", False):
        recompute_layers(model)
    if name == "chunked":
        logprobs.CHUNK_NUMBERS = CHUNK * len(tokenizer)
    loop = (Falling if name == "best" else Loop)(
        model,
        sequences,
        examples[:trained],
        OBJECTIVES.get(name, CRITIC),
        settings,
        digest="d",
        heldout=examples[trained:] if name not in ("rft", "tokens") else (),
        on_step=more.pop("on_step", records.append),
        **more,
    )
    logprobs.CHUNK_NUMBERS = USUAL_NUMBERS
    return loop


def main(folder: Path) -> None:
    device = init_ranks("cpu")
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    given = Job.read(folder / JOB).vision
    sees_pages = None if given is None else vision_processor(given)
    for settings, objective in CASES:
        name, vision = case_name(settings, objective), sees_pages if objective.startswith("sighted") else None

        def make_engine(
            model: Any, clip: float, settings: ZeroSettings = settings, vision: VisionProcessor | None = vision
        ) -> ZeroEngine:
            return ZeroEngine(model, clip, settings, device, vision)

        resumed = settings.offload == "none" and (settings.stage, objective) in RESUMED
        records: list[Record] = []
        checkpoint, stopped = folder / f"{name}-checkpoint", folder / f"{name}-stopped"

        def on_step(
            record: Record,
            kept: list[Record] = records,
            one: Path = checkpoint,
            copy: Path = stopped,
            last: int = last_step(objective),
        ) -> None:
            kept.append(record)
            if record["step"] == last and one.exists() and not copy.exists() and torch.distributed.get_rank() == 0:
                shutil.copytree(one, copy)

        more: dict[str, Any] = {"make_engine": make_engine, "recompute": objective in RECOMPUTED}
        if objective == "best" or resumed:
            more["checkpoint"] = checkpoint / "settled.json"
        if resumed:
            more["save_every"] = last_step(objective) - 1
        if objective == LOADED:
            with partitioned_loading(settings, SETTINGS.clip):
                more["model"] = load_model(str(folder / MODEL), "cpu", "float32")
            held = sum(parameter.numel() + parameter.ds_tensor.numel() for parameter in more["model"].parameters())
            (folder / f"held-{torch.distributed.get_rank()}").write_text(str(held))
        loop = make_loop(tokenizer, objective, records, folder, on_step=on_step, **more)
        assert loop.scorer.max_shared_length or vision, "the scorer's checks succeed with partitioned weights too"
        loop.run()
        _write_results(folder / name, records, loop.final_weights())
        if resumed:
            again: list[Record] = []
            more["checkpoint"] = stopped / "settled.json"
            loop = make_loop(tokenizer, objective, again, folder, **more)
            loop.run(resume=True)
            _write_results(folder / f"{name}-resumed", again, loop.final_weights())
        gc.freeze()  # DeepSpeed collects garbage each time that an engine is made
    run(folder / JOB)  # and end the exchange: its threads, if they outlive the program, abort it now and then


def _write_results(path: Path, records: list[Record], weights: dict[str, torch.Tensor] | None) -> None:
    if weights is not None:
        path.with_suffix(".json").write_text(json.dumps(records))
        torch.save(weights, path.with_suffix(".pt"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    collector.before_exit()
