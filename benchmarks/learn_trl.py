"""Train TRL's DPOTrainer on the pairs of benchmarks/learn.py, with its fastest settings: hardly any padding, no
gradient checkpointing, logits of completions only, and micro-batches of `--trl-micro` pairs (1 was fastest on a CPU).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch.utils.data import SequentialSampler
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

from benchmarks.synthetic import BETA, Metrics, Shape, first_steps, make_model, peak_mib, perturb
from sweet.learn.components import Example
from sweet.learn.sequences import TokenSequence


class UnchangedOrder(DPOTrainer):  # type: ignore[misc]
    """Trains on the given token ids in the given order."""

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_more: Any) -> Any:
        return dataset

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)


def make_rows(pool: Sequence[TokenSequence], examples: Iterable[Example]) -> list[dict[str, list[int]]]:
    """Return step-level pairs as TRL reads them: the prompt that both sides have, and their replies."""
    rows = []
    for example in examples:
        chosen, rejected = pool[example.chosen[0]], pool[example.rejected[0]]
        cut = chosen.spans[0].start
        rows.append(
            {
                "prompt_ids": list(chosen.ids[:cut]),
                "chosen_ids": list(chosen.ids[cut:]),
                "rejected_ids": list(rejected.ids[cut:]),
            }
        )
    return rows


def make_trainer(policy: Any, reference: Any, rows: list[dict[str, list[int]]], folder: str, **settings: Any) -> Any:
    """Return a trainer with the optimizer and the loss of `sweet train-actor`.

    Args:
        settings: of `trl.DPOConfig`; the device, the learning rate and the division of a step are among them.
    """
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0}, "<pad>")), pad_token="<pad>")
    args = DPOConfig(
        output_dir=folder,
        beta=BETA,
        loss_type="sigmoid",
        max_length=None,
        lr_scheduler_type="constant",
        adam_beta1=0.9,
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        num_train_epochs=1,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        **settings,
    )
    return UnchangedOrder(
        model=policy,
        ref_model=reference,
        args=args,
        # With no fingerprint given, the library pickles the table to compute one, which fails in some versions.
        train_dataset=Dataset(pyarrow.Table.from_pylist(rows), fingerprint="pairs"),
        processing_class=tokenizer,
    )


def train_trl(request: Metrics, shape: Shape) -> Metrics:
    """Train the same steps in the same order. With method "first", return the losses of the first pairs only."""
    pool, examples = first_steps(request, shape)
    first = request["method"] == "first"
    rows = make_rows(pool, examples[: request["batch"]] if first else examples)
    policy = make_model(shape, request["seed"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(
            perturb(policy, request["seed"]) if first else policy,
            make_model(shape, request["seed"]),
            rows,
            folder,
            learning_rate=request["lr"],
            per_device_train_batch_size=request["trl_micro"],
            gradient_accumulation_steps=max(1, request["batch"] // request["trl_micro"]),
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        if first:
            with torch.no_grad():
                first_losses = [trainer.compute_loss(trainer.model, trainer.data_collator([row])) for row in rows]
            return {"losses": [float(loss) for loss in first_losses]}
        started, used = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, cpu = time.perf_counter() - started, time.process_time() - used
    return {
        "seconds": seconds,
        "cpu_s": cpu,
        "pairs_per_s": len(rows) / seconds,
        "losses": losses_of(trainer),
        "peak_rss_mib": peak_mib(),
    }


def losses_of(trainer: Any) -> list[float]:
    """Return the loss of each step of a training that has ended."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
