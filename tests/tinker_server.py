"""A service of the Tinker interface, as its client speaks to it: LoRA adapters of one model, trained by torch.

It takes a repeated request (the same `seq_id`) for the one that it has, as the interface says, and can lose answers.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import torch

from sweet.llm.tinker import close
from tests.local_server import QuietHandler, serving

API = "/api/v1/"
ADAPTER = "default"


@dataclass
class Training:
    """An adapter with its optimizer."""

    model: Any
    optimizer: torch.optim.AdamW

    @classmethod
    def begin(cls, base: Path, lora: dict[str, Any]) -> Training:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        auto: Any = AutoModelForCausalLM
        settings = LoraConfig(r=lora["rank"], lora_alpha=2 * lora["rank"], target_modules="all-linear")
        model = auto.from_pretrained(base, dtype=torch.float32)
        torch.manual_seed(lora.get("seed") or 0)
        with warnings.catch_warnings(action="ignore"):  # peft reads a deprecated name
            model = get_peft_model(model, settings).eval()
        return cls(model, torch.optim.AdamW([one for one in model.parameters() if one.requires_grad]))

    def compute(self, request: Any) -> Any:
        """Return the log-probabilities of the targets; unless it is `forward_only`, add gradients of their weighted
        negative sum."""
        from tinker.proto import tinker_public_pb2 as proto

        answer: Any = proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        total = 0.0
        for datum in request.data:
            ids = np.concatenate([np.frombuffer(part.encoded_text.tokens, np.int32) for part in datum.model_input])
            targets, weights = (
                torch.tensor(np.frombuffer(found.dense, kind)).reshape(tuple(found.shape))
                for found, kind in (
                    (datum.loss_fn_inputs["target_tokens"], np.int64),
                    (datum.loss_fn_inputs["weights"], np.float32),
                )
            )
            with torch.set_grad_enabled(not request.forward_only):
                table = self.model(input_ids=torch.tensor(ids.astype(np.int64))[None]).logits[0].log_softmax(1)
                logprobs = table.gather(1, targets.reshape(len(ids), -1)).reshape(targets.shape)
                loss = -(logprobs * weights).sum()
            if not request.forward_only:
                loss.backward()
            total += loss.item()
            record = answer.loss_fn_outputs.add(num_datums=1)
            data = logprobs.detach().numpy().tobytes()
            tensor = record.fields["logprobs"]
            tensor.dtype, tensor.data = proto.DTYPE_FLOAT32, data
            tensor.offsets = np.array([0, len(data)], np.int64).tobytes()
            tensor.trailing_shape.extend(logprobs.shape[1:])
        answer.metrics["loss:sum"] = total
        return answer

    def sample(self, request: dict[str, Any]) -> Any:
        """Return sampled replies with the log-probabilities of their ids."""
        from tinker.proto import tinker_public_pb2 as proto

        prompt = [token for chunk in request["prompt"]["chunks"] for token in chunk["tokens"]]
        params, answer = request["sampling_params"], proto.SampleResponse()
        random = torch.Generator().manual_seed(params.get("seed") or 0)
        for _ in range(request["num_samples"]):
            ids, logprobs = list(prompt), list[float]()
            while len(logprobs) < params["max_tokens"] and (not logprobs or ids[-1] not in params["stop"]):
                with torch.no_grad():
                    table = self.model(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(0)
                drawn = torch.multinomial(table.exp(), 1, generator=random)
                ids.append(int(drawn if params["temperature"] else table.argmax()))
                logprobs.append(table[ids[-1]].item())
            sequence = answer.sequences.add(stop_reason=proto.STOP_REASON_STOP)
            sequence.tokens = np.array(ids[len(prompt) :], np.int32).tobytes()
            sequence.logprobs = np.array(logprobs, np.float32).tobytes()
        return answer

    def step(self, settings: dict[str, Any]) -> None:
        [group] = self.optimizer.param_groups
        names = {"lr": "learning_rate", "eps": "eps", "weight_decay": "weight_decay"}
        group |= {own: settings[name] for own, name in names.items()}
        group["betas"] = (settings["beta1"], settings["beta2"])
        if settings["grad_clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(group["params"], settings["grad_clip_norm"])
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.model.save_pretrained(folder, save_embedding_layers=False)
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")

    def load(self, folder: Path, *, optimizer: bool) -> None:
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(self.model, load_file(folder / "adapter_model.safetensors"))
        if optimizer:
            self.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))


@dataclass
class TinkerService:
    """The state of a service.

    Attributes:
        base: the folder of its model, whose name is that of the folder.
        folder: for saved states.
        key: that it accepts.
        calls: the number of requests by their names, repeated ones included; `steps` those of optimizer steps taken.
        lose: names of requests whose next answer is lost after they were done.
        tokenizer: what it says is its model's.
        spoil: changes an answer.
        arrived: called with the name of each request when it is done; returns whether it is answered.
        padding: bytes that each exported file has more.
        kept_for: the seconds that a state was saved for, by its name; None for good.
    """

    base: Path
    folder: Path
    key: str = "tml-key-of-a-test"
    calls: Counter[str] = field(default_factory=Counter)
    lose: set[str] = field(default_factory=set)
    tokenizer: str = "own"
    tokens: int = 0
    spoil: Any = None
    arrived: Callable[[str], bool] = lambda _: True
    padding: int = 0
    kept_for: dict[str, int | None] = field(default_factory=dict)
    trainings: dict[str, Training] = field(default_factory=dict)
    samplers: dict[str, Training] = field(default_factory=dict)
    _results: dict[str, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)
    _sessions: Iterator[int] = field(default_factory=itertools.count)

    def answer(self, name: str, request: Any) -> Any:
        """Return what a request is answered by; work is done now, and its result fetched by `retrieve_future`."""
        if name == "create_session":
            return {"type": name, "session_id": f"session-{next(self._sessions)}"}
        if name == "get_info":
            data = {"arch": "llama", "model_name": self.base.name, "tokenizer_id": self.tokenizer}
            return {"type": name, "model_data": data, "model_id": request["model_id"], "is_lora": True, "lora_rank": 4}
        if name == "retrieve_future":
            found = self._results[request["request_id"]]
            return found if self.spoil is None else self.spoil(found)
        if name in ("session_heartbeat", "telemetry", "client/config", "client/dynamic_config"):
            return {"type": name, "status": "accepted"} if name == "telemetry" else {}
        if name == "asample":
            id_ = f"{request['sampling_session_id']}:{request['seq_id']}"
            if id_ not in self._results:
                self._results[id_] = self.samplers[request["sampling_session_id"]].sample(request)
            return {"request_id": id_, "sample_sequence_ids": [f"{id_}:{n}" for n in range(request["num_samples"])]}
        own = isinstance(request, dict)
        model = (request.get("model_id") if own else request.model_id) or (
            f"{request['session_id']}:train:{request['model_seq_id']}"
        )
        number = (request.get("seq_id", 0) if own else request.seq_id) or 0
        id_ = f"{model}:{number}"
        if id_ not in self._results:
            self._results[id_] = self._done(name, request, model)
        return {"request_id": id_, "model_id": model}

    def _done(self, name: str, request: Any, model: str) -> Any:
        if name == "create_model":
            if request["base_model"] != self.base.name:
                raise ValueError(f"there is no model {request['base_model']}")
            self.trainings[model] = Training.begin(self.base, request["lora_config"])
            return {"type": name, "model_id": model}
        if name == "load_weights":
            path = self.folder / request["path"].removeprefix("tinker://").replace(":", "_")
            if model not in self.trainings:
                lora = json.loads((path / "adapter_config.json").read_text())
                self.trainings[model] = Training.begin(self.base, {"rank": lora["r"]})
            self.trainings[model].load(path, optimizer=request["optimizer"])
            return {"type": name, "path": request["path"]}
        training = self.trainings[model]
        if name == "save_weights_for_sampler":
            session = f"{model}:sample:{request['sampling_session_seq_id']}"
            self.samplers[session] = Training(copy.deepcopy(training.model), training.optimizer)
            return {"type": name, "sampling_session_id": session}
        if name == "forward_backward":
            self.tokens += sum(len(part.encoded_text.tokens) // 4 for one in request.data for part in one.model_input)
            return training.compute(request)
        if name == "optim_step":
            self.calls["steps"] += 1
            training.step(request["optim_params"] if "optim_params" in request else request["adam_params"])
            return {"type": name}
        kind = {"save_weights": "weights", "save_weights_external": "external_weights"}[name]
        path = f"{model}/{kind}/{request['path']}"
        training.save(self.folder / path.replace(":", "_"))
        self.kept_for[f"tinker://{path}"] = request.get("ttl_seconds")
        return {"type": name, "path": f"tinker://{path}"}

    def states(self) -> list[str]:
        """Return the states that it has, as its client names them, without the exports."""
        found = (file.relative_to(self.folder) for file in self.folder.glob("*/weights/*"))
        return sorted(f"tinker://{path.as_posix().replace('_', ':')}" for path in found)

    def files(self, path: str, address: str) -> dict[str, Any]:
        """Return the addresses of the files of a saved state."""
        model, _, rest = path.partition("/checkpoints/")
        folder = f"{model}/{rest.removesuffix('/external_weights_urls')}".replace(":", "_")
        names = [file.name for file in (self.folder / folder).iterdir()]
        return {"urls": {name: f"{address}/files/{folder}/{name}" for name in names}, "expires": "2099-01-01T00:00:00Z"}


@contextmanager
def tinker_service(service: TinkerService) -> Iterator[str]:
    """Serve on a free port, and yield the address."""

    class Handler(QuietHandler):
        def say(self, status: int, content: Any) -> None:
            if hasattr(content, "SerializeToString"):
                return self.send(status, content.SerializeToString(), {"Content-Type": "application/x-protobuf"})
            return self.send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

        def do_GET(self) -> None:
            path = unquote(self.path)
            if path.startswith("/files/"):
                content = (service.folder / path.removeprefix("/files/")).read_bytes()
                self.send(200, content + bytes(service.padding))
            else:
                self.say(
                    200, service.files(path.removeprefix(f"{API}training_runs/"), f"http://{self.headers['Host']}")
                )

        def do_DELETE(self) -> None:
            model, _, rest = unquote(self.path).removeprefix(f"{API}training_runs/").partition("/checkpoints/")
            with service._lock:
                shutil.rmtree(service.folder / f"{model}/{rest}".replace(":", "_"))
            self.send(204, b"")

        def do_POST(self) -> None:
            from tinker.proto.tinker_public_pb2 import ForwardBackwardRequest

            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            name = self.path.partition("?")[0].removeprefix(API)
            if service.key not in (self.headers.get("X-API-Key"), self.headers.get("Authorization", "")[7:]):
                return self.say(401, {"detail": "this key is not known"})
            request: Any = ForwardBackwardRequest()
            if "protobuf" in self.headers.get("Content-Type", ""):
                request.ParseFromString(body)
            else:
                request = json.loads(body or b"{}")
            with service._lock:
                service.calls[name] += 1
                try:
                    status, found = 200, service.answer(name, request)
                except ValueError as error:
                    status, found = 404, {"detail": str(error)}
                answered = service.arrived(name) and name not in service.lose
                service.lose.discard(name)
            return self.say(status, found) if answered else None

    with serving(Handler) as address:
        yield address


@contextmanager
def chosen_service(base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerService]:
    """Serve, and have the client find the service; its sessions end with it."""
    import tinker

    service = TinkerService(base, folder)
    sessions, make = list[Any](), tinker.ServiceClient

    def begin() -> Any:
        sessions.append(make())
        return sessions[-1]

    monkeypatch.setattr(tinker, "ServiceClient", begin)
    with tinker_service(service) as address:
        monkeypatch.setenv("TINKER_BASE_URL", address)
        monkeypatch.setenv("TINKER_API_KEY", service.key)
        yield service
        for session in sessions:
            close(session)
