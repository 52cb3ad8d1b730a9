"""Runs TuFT on a CPU: `PYTHON tuft_server.py PORT MODEL_FOLDER`, by a Python that has TuFT 0.2 without its vllm.

TuFT trains in a Ray actor that reserves a GPU, and resets CUDA's memory counters, which torch for CPUs does not have.
Here its model works in the server's process. It samples by vllm, in an actor that reserves a GPU, with a worker for
GPUs; here transformers samples, in the same process. All else is TuFT's own.
"""

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml


class Method:
    """A method as that of an actor."""

    def __init__(self, method: Any) -> None:
        self.remote = method


class InProcess:
    """A model as an actor."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self._model, name))


class Sampler:
    """Samples by transformers, with adapters of peft (implements TuFT's BaseSamplingBackend)."""

    def __init__(self, config: Any) -> None:
        from transformers import AutoModelForCausalLM

        auto: Any = AutoModelForCausalLM
        self.config, self.base_model = config, config.model_name
        self.model: Any = auto.from_pretrained(config.model_path, dtype=torch.float32).eval()
        self.adapters, self.lock = dict[str, Path](), asyncio.Lock()

    async def async_init(self) -> None:
        pass

    async def shutdown(self) -> None:
        pass

    def get_openai_api_url(self) -> None:
        return None

    async def add_adapter(self, lora_id: str, adapter_path: Path) -> None:
        async with self.lock:
            self.model.load_adapter(str(adapter_path), adapter_name=lora_id)
            self.adapters[lora_id] = adapter_path

    async def remove_adapter(self, lora_id: str) -> None:
        async with self.lock:
            if self.adapters.pop(lora_id, None) is not None:
                self.model.delete_adapter(lora_id)

    async def sample(
        self,
        prompt: Any,
        num_samples: int,
        sampling_params: Any,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        lora_id: str | None = None,
    ) -> Any:
        async with self.lock:
            if lora_id is not None:
                self.model.set_adapter(lora_id)
            elif self.adapters:
                self.model.disable_adapters()
            try:
                given = prompt.to_ints(), num_samples, sampling_params
                sequences = await asyncio.to_thread(lambda: [self.drawn(*given, row) for row in range(num_samples)])
            finally:
                if lora_id is None and self.adapters:
                    self.model.enable_adapters()
        return import_module("tinker.types").SampleResponse(sequences=sequences)

    @torch.no_grad()
    def drawn(self, prompt: list[int], rows: int, params: Any, row: int) -> Any:
        """Return the reply of a row. It depends on the prompt, the seed and the row alone."""
        random = torch.Generator()
        random.seed() if params.seed is None else random.manual_seed(params.seed * rows + row)
        ids, logprobs, cache, new = list[int](), list[float](), None, list(prompt)
        while len(ids) < params.max_tokens and (not ids or ids[-1] not in params.stop):
            found = self.model(input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True)
            table, cache = (found.logits[0, -1] / (params.temperature or 1)).log_softmax(0), found.past_key_values
            drawn = torch.multinomial(table.exp(), 1, generator=random) if params.temperature else table.argmax()
            new = [int(drawn)]
            ids += new
            logprobs.append(float(table[new[0]]))
        reason = "stop" if ids[-1] in params.stop else "length"
        sequence = import_module("tinker.types").SampledSequence
        return sequence(stop_reason=reason, _tokens_list=ids, _logprobs_list=logprobs)


def main(port: str, model: str) -> None:
    trained = import_module("tuft.backends.hf_training_model").HFTrainingModel  # no package of the tests
    torch.set_num_threads(1)
    torch.cuda.reset_peak_memory_stats = lambda *_: None
    trained.get_actor = classmethod(lambda cls, config: InProcess(cls(config)))
    samples = import_module("tuft.backends.base_backend").BaseSamplingBackend
    samples.create_backend = classmethod(lambda cls, config, worker_venv_path=None: Sampler(config))
    home = Path(os.environ["TUFT_HOME"])
    settings = {"model_name": Path(model).name, "model_path": model, "max_model_len": 2048}
    settings |= {"max_lora_rank": 32, "max_loras": 8}
    users = {os.environ.get("TINKER_API_KEY", "tml-key-of-a-test"): "tester"}
    config = {"checkpoint_dir": str(home / "states"), "supported_models": [settings], "authorized_users": users}
    (home / "tuft.yaml").write_text(yaml.safe_dump(config))
    words = ["launch", "--host", "127.0.0.1", "--port", port, "--config", str(home / "tuft.yaml")]
    import_module("tuft.cli").app(words)


if __name__ == "__main__":
    main(*sys.argv[1:])
