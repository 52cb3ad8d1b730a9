"""Trains by a service of the Tinker interface: the weights and the optimizer are there, the losses are computed here.

A step sends its sequences through a forward pass and gets the log-probabilities of the supervised ids. These are the
leaves of the graph in which `sweet.learn.losses` computes the loss, as for the other engines. Its gradient g with
respect to them goes back as the weights -g of the service's `cross_entropy`, the sum of -w log p, whose gradient is
that of the loss; the optimizer step follows. So every loss component is computed by the same code as here, and a
service needs no more than `forward`, `forward_backward`, `optim_step` and saved states. It has no prefix trees.

A checkpoint has the name of a state that the service saved, with its optimizer, instead of weights. A training that is
resumed begins from it as a new training of the service, so that the steps after it are not part of its weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from sweet.errors import SweetError, UsageError, first_line
from sweet.files import write_whole
from sweet.learn.engine import BETAS, Engine, OtherModels
from sweet.learn.logprobs import Scorer, SpanScores, span_sums
from sweet.learn.sequences import TokenSequence
from sweet.learn.trainee import Start, write_adapter
from sweet.learn.tree import Work
from sweet.llm.adapter import CONFIG, LARGEST_RANK, WEIGHTS
from sweet.llm.tinker import STATE, Service, answer_of, import_client, service_address
from sweet.runs.tokens import current_meter

EPSILON = 1e-8
"""Of AdamW: torch's, which the other engines have. The service's own default is smaller."""
STATE_SECONDS = 30 * 24 * 3600
"""Seconds that the service keeps the states of a training; that of a written model is kept for good."""


def sent_tokens(sequence: TokenSequence) -> int:
    """Return the number of ids that a pass over a sequence sends: what follows the last supervised id is not."""
    return max(span.stop for span in sequence.spans) - 1


# Forward and backward -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """A sequence as the service gets it: it predicts `targets` from `ids`, and `places` are those that are scored.

    Attributes:
        ids: those before the last that is scored, [n].
        targets: of each position, [n] or, with other ids, [n, 1 + k].
        places: [scored].
    """

    ids: list[int]
    targets: Tensor
    places: Tensor

    @classmethod
    def of(cls, sequence: TokenSequence, other_ids: Tensor | None) -> _Row:
        """Args: other_ids: [scored, k] ids that are scored too."""
        places = [place - 1 for span in sequence.spans for place in range(span.start, span.stop)]
        size = sent_tokens(sequence)
        targets, place_index = torch.tensor(sequence.ids[1 : size + 1]), torch.tensor(places)
        if other_ids is not None:
            targets = torch.cat([targets[:, None], torch.zeros(size, other_ids.shape[1], dtype=torch.long)], dim=1)
            targets[place_index, 1:] = other_ids
        return cls(list(sequence.ids[:size]), targets, place_index)

    def datum(self, weights: Tensor) -> Any:
        """Return the client's form of it. weights: as `targets`."""
        types = import_client().types
        tensors = {"target_tokens": self.targets, "weights": weights}
        inputs = {name: types.TensorData.from_torch(tensor) for name, tensor in tensors.items()}
        return types.Datum(model_input=types.ModelInput.from_ints(self.ids), loss_fn_inputs=inputs)


def _count(data: Sequence[Any]) -> None:
    """Count a pass over what was sent for the attempt that is under way, if one is."""
    if (meter := current_meter()) is not None:
        meter.add("training", sum(datum.model_input.length for datum in data), 0)


class RemoteScorer(Scorer):
    """Computes log-probabilities by a training of the service.

    Args:
        client: of the training.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.device = torch.device("cpu")
        self.max_shared_length = 0
        self.head = self.flex_error = None
        self.computes_logprobs = True
        self.work = Work()
        self._pending: list[tuple[list[_Row], Tensor]] = []

    def pack(self, bundles: Sequence[Sequence[TokenSequence]], budget: int) -> list[list[int]]:
        """One group of all: the service divides what it gets."""
        return [list(range(len(bundles)))] if bundles else []

    def __call__(self, sequences: Sequence[TokenSequence], other_ids: Tensor | None = None, top: int = 0) -> SpanScores:
        if top:
            what = "The service says how probable given ids are, and not which are the most likely."
            raise UsageError(what, where="--engine tinker", fix="--rule-option top=0, or another engine")
        sizes = [sequence.supervised for sequence in sequences]
        parts = [None] * len(sizes) if other_ids is None else torch.split(other_ids, sizes)
        rows = [_Row.of(sequence, part) for sequence, part in zip(sequences, parts, strict=True)]
        logprobs = torch.cat(self._forward(rows)).requires_grad_(torch.is_grad_enabled())
        if torch.is_grad_enabled():
            self._pending.append((rows, logprobs))
        self.work += Work(sum(len(row.ids) for row in rows))
        columns = logprobs if other_ids is not None else logprobs[:, None]
        sums, counts = span_sums([span for sequence in sequences for span in sequence.spans], columns[:, 0])
        return SpanScores(sums, counts, columns[:, 0], other_logprobs=None if other_ids is None else columns[:, 1:])

    def _forward(self, rows: Sequence[_Row]) -> list[Tensor]:
        data = [row.datum(torch.zeros(row.targets.shape)) for row in rows]
        answer = answer_of("log-probabilities", lambda: self.client.forward(data, "cross_entropy"))
        _count(data)
        try:
            logprobs = [output["logprobs"].to_torch().float() for output in answer.loss_fn_outputs]
            return [values.reshape(row.targets.shape)[row.places] for row, values in zip(rows, logprobs, strict=True)]
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            what = f"The service's log-probabilities are not those of the ids that it got: {first_line(error)}"
            raise SweetError(what, where=service_address(), fix="a service of the Tinker interface") from error

    def surrogate(self) -> list[Any]:
        """Return what has the gradients of the loss, for `cross_entropy`, and forget it; empty where one of them is not
        finite."""
        data = []
        pending, self._pending = self._pending, []
        for rows, logprobs in pending:
            gradient = torch.zeros_like(logprobs) if logprobs.grad is None else logprobs.grad
            for row, part in zip(rows, torch.split(gradient, [len(row.places) for row in rows]), strict=True):
                weights = torch.zeros(row.targets.shape).index_add(0, row.places, -part)
                if not weights.isfinite().all():
                    return []
                data.append(row.datum(weights))
        return data


class RemoteEngine(Engine):
    """A model whose adapter a service trains.

    Args:
        model: the model's shapes, with an adapter.
        clip: the maximum gradient norm.
        start: what the training starts from.

    Raises:
        UsageError: the client is not installed, or the service does not have the model.
        ServerError: the service is away.
    """

    scorer: RemoteScorer

    def __init__(self, model: Any, clip: float, start: Start) -> None:
        self.model, self.clip, self._start = model, clip, start
        self._types = import_client().types
        assert start.lora is not None
        self._service = Service(start.base, start.lora.rank, start.lora.seed)
        self.scorer = RemoteScorer(self._service.training())
        self._saved = 0
        self._adapter: _Adapter | None = None
        self._states = list[str]()
        self._written_state: str | None = None

    def step(self, lr: float) -> float | None:
        """Have the service clip gradients and update the weights, unless a gradient of the loss is not finite. Return
        NaN then, and otherwise None: the service does not say the norm."""
        data = self.scorer.surrogate()
        if not data:
            return math.nan
        options = {"learning_rate": lr, "weight_decay": self.weight_decay, "grad_clip_norm": self.clip}
        settings = self._types.AdamParams(beta1=BETAS[0], beta2=BETAS[1], eps=EPSILON, **options)
        client = self.scorer.client
        gradient, step = client.forward_backward(data, "cross_entropy"), client.optim_step(settings)
        answer_of("gradients", lambda: gradient)
        _count(data)
        answer_of("an optimizer step", lambda: step)
        return None

    def state(self, folder: Path | None = None) -> dict[str, Any]:
        """Have the service save its state; return the name."""
        adapter_fields = {"kept": self._written_state, "adapter": self._adapter and self._adapter.model_dump()}
        return {"service": self._save(), "tokenizer": _tokenizer_id(self.scorer.client), **adapter_fields}

    def _save(self) -> str:
        self._saved += 1
        name = f"sweet-{self._saved:06}"
        saved_state = answer_of("a saved state", lambda: self.scorer.client.save_state(name, ttl_seconds=STATE_SECONDS))
        self._states.append(str(saved_state.path))
        return self._states[-1]

    def save(self, path: Path, state: dict[str, Any], other_models: OtherModels | None = None) -> None:
        """As `Engine.save`; then the service removes the states that the checkpoint does not name."""
        super().save(path, state, other_models)
        checkpoint_states = {self._states[-1], self._written_state}
        for name in set(self._states) - checkpoint_states:
            self._service.remove(name)
        self._states = [name for name in self._states if name in checkpoint_states]

    def load_state(self, state: dict[str, Any], folder: Path | None = None) -> None:
        client = self._service.training(state["service"], optimizer=True)
        if (tokenizer_id := _tokenizer_id(client)) != state["tokenizer"]:
            what = f"The service's model had the tokenizer {state['tokenizer']}, and now it has {tokenizer_id}."
            raise UsageError(what, where=service_address(), fix="train without --resume")
        self.scorer.client = client
        self._written_state, adapter = state["kept"], state["adapter"]
        self._adapter = adapter and _Adapter.model_validate(adapter)
        self._states = [name for name in (self._written_state, state["service"]) if name is not None]

    def weights(self) -> dict[str, Tensor]:
        """The adapter's weights by peft's names, downloaded. The service keeps their state for a time.

        Raises:
            SweetError: they are not an adapter of the model.
        """
        from safetensors.torch import load

        where, shapes = service_address(), [weight.shape for weight in self.model.parameters() if weight.ndim > 1]
        adapter_size = self._service.lora["rank"] * sum(math.prod(size[:-2]) * (size[-2] + size[-1]) for size in shapes)
        state_name = self._save()
        max_bytes = 8 * adapter_size + (1 << 20)  # in float32, and once more under other names
        files = self._service.download(self.scorer.client, f"sweet-adapter-{self._saved:06}", max_bytes)
        try:
            self._adapter = _Adapter.model_validate_json(files[CONFIG])
            weights: dict[str, Tensor] = load(files[WEIGHTS])
        except Exception as error:  # that of safetensors is no ValueError
            what = f"What the service exports is not an adapter in peft's format: {first_line(error)}"
            raise SweetError(what, where=where, fix="a service that exports LoRA adapters") from error
        layers = dict(self.model.named_modules())
        for name, tensor in weights.items():
            layer, _, matrix = name.removeprefix("base_model.model.").partition(".lora_")
            shape = getattr(getattr(layers.get(layer), "weight", None), "shape", (None, None))
            if tensor.shape[-1 if matrix == "A.weight" else 0] != shape[1 if matrix == "A.weight" else 0]:
                what = f"The adapter that the service exports has a matrix that the model has no layer for: {name[:80]}"
                raise SweetError(what, where=where, fix=f"--model with the service's model of {self._start.base}")
        self._written_state = state_name
        return weights

    def write(self, weights: Mapping[str, Tensor], tokenizer: Any, folder: Path) -> None:
        """As `Trainee.write`, of what `weights` returned last, with the name of its state at the service."""
        assert self._adapter is not None
        write_adapter(weights, self._adapter.model_dump(), self.model, tokenizer, self._service.base, folder)
        is_last = self._states[-1] == self._written_state
        client = self.scorer.client if is_last else self._service.training(self._written_state, optimizer=True)
        state_path = answer_of("a saved state", lambda: client.save_state("sweet", ttl_seconds=None)).path  # for good
        write_whole(folder / STATE, json.dumps({"service": state_path, "base": self._service.base}).encode())

    def merged_weights(self) -> dict[str, Tensor]:
        """Return nothing: the sampler is at the service, which has the weights."""
        return {}

    @cached_property
    def start(self) -> RemoteScorer:
        """The model that the training starts from."""
        return RemoteScorer(self._service.training())


def _tokenizer_id(client: Any) -> str:
    return str(getattr(client.get_info().model_data, "tokenizer_id", None))


class _Adapter(BaseModel):
    """The fields of the service's adapter_config.json that are written into ours; others are not wanted."""

    model_config = ConfigDict(extra="ignore")

    r: int = Field(ge=1, le=LARGEST_RANK)
    lora_alpha: float = Field(gt=0, allow_inf_nan=False)
    target_modules: list[str] | str
    rank_pattern: dict[str, int] = Field(default_factory=dict)
    alpha_pattern: dict[str, float] = Field(default_factory=dict)
    use_rslora: bool = False
    use_dora: Literal[False] = False
    bias: Literal["none"] = "none"
