"""Train TRL's DPOTrainer on the pairs of benchmarks/learn.py, with its fastest settings: hardly any padding, no
gradient checkpointing, logits of completions only, and micro-batches of `--trl-micro` pairs (1 was fastest on a CPU).
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import pyarrow
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch.utils.data import SequentialSampler
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

from benchmarks.synthetic import BETA, Metrics, Shape, make_model, make_pairs, peak_mib, perturb


class UnchangedOrder(DPOTrainer):  # type: ignore[misc]
    """Trains on the given token ids in the given order."""

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_more: Any) -> Any:
        return dataset

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)


def train_trl(request: Metrics, shape: Shape) -> Metrics:
    """Train the same epoch in the same order. With method "first", return the losses of the first pairs only."""
    pool, examples = make_pairs(shape, request["seed"], request["pairs"])
    first = request["method"] == "first"
    rows = []
    for example in examples[: request["batch"]] if first else [examples[i] for i in request["order"]]:
        chosen, rejected = pool[example.chosen[0]], pool[example.rejected[0]]
        cut = chosen.spans[0].start
        rows.append(
            {
                "prompt_ids": list(chosen.ids[:cut]),
                "chosen_ids": list(chosen.ids[cut:]),
                "rejected_ids": list(rejected.ids[cut:]),
            }
        )
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0}, "<pad>")), pad_token="<pad>")
    policy = make_model(shape, request["seed"])
    with tempfile.TemporaryDirectory() as folder:
        args = DPOConfig(
            output_dir=folder,
            beta=BETA,
            loss_type="sigmoid",
            max_length=None,
            learning_rate=request["lr"],
            lr_scheduler_type="constant",
            adam_beta1=0.9,
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            num_train_epochs=1,
            per_device_train_batch_size=request["trl_micro"],
            gradient_accumulation_steps=max(1, request["batch"] // request["trl_micro"]),
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = UnchangedOrder(
            model=perturb(policy, request["seed"]) if first else policy,
            ref_model=make_model(shape, request["seed"]),
            args=args,
            # With no fingerprint given, the library pickles the table to compute one, which fails in some versions.
            train_dataset=Dataset(pyarrow.Table.from_pylist(rows), fingerprint="pairs"),
            processing_class=tokenizer,
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
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "peak_rss_mib": peak_mib(),
    }
