"""TRL's DPOTrainer over the pairs of benchmarks/learn.py, as fast as it goes here: no padding to speak of, no
checkpointing, logits at completions only, the micro-batch that `--trl-micro` names (1 was the fastest on a CPU).
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

from benchmarks.learn_work import BETA, Figures, Shape, model_of, pairs_of, peak_mib, perturbed


class Same(DPOTrainer):
    """Takes token ids as they are, in the order given."""

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_more: Any) -> Any:
        return dataset

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)


def train_trl(told: Figures, shape: Shape) -> Figures:
    """The same epoch in the same order; where `way` is first, the losses of the first pairs before any step."""
    pool, examples = pairs_of(shape, told["seed"], told["pairs"])
    first = told["way"] == "first"
    rows = []
    for example in examples[: told["batch"]] if first else [examples[i] for i in told["order"]]:
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
    policy = model_of(shape, told["seed"])
    with tempfile.TemporaryDirectory() as place:
        args = DPOConfig(
            output_dir=place,
            beta=BETA,
            loss_type="sigmoid",
            max_length=None,
            learning_rate=told["lr"],
            lr_scheduler_type="constant",
            adam_beta1=0.9,
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            num_train_epochs=1,
            per_device_train_batch_size=told["trl_micro"],
            gradient_accumulation_steps=max(1, told["batch"] // told["trl_micro"]),
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = Same(
            model=perturbed(policy, told["seed"]) if first else policy,
            ref_model=model_of(shape, told["seed"]),
            args=args,
            # A name of its own, or the library pickles the table to make one, which some versions cannot.
            train_dataset=Dataset(pyarrow.Table.from_pylist(rows), fingerprint="pairs"),
            processing_class=tokenizer,
        )
        if first:
            with torch.no_grad():
                alone = [trainer.compute_loss(trainer.model, trainer.data_collator([row])) for row in rows]
            return {"losses": [float(loss) for loss in alone]}
        began, used = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return {
        "seconds": seconds,
        "cpu_s": cpu,
        "pairs_per_s": len(rows) / seconds,
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "peak_rss_mib": peak_mib(),
    }
