"""Runs TuFT on a CPU: `PYTHON tuft_server.py PORT MODEL_FOLDER`, by a Python that has TuFT 0.2.

TuFT trains in a Ray actor that reserves a GPU, and resets CUDA's memory counters, which torch for CPUs does not have.
Here its model works in the server's process. All else is TuFT's own.
"""

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


port, model = sys.argv[1:]
trained = import_module("tuft.backends.hf_training_model").HFTrainingModel  # no package of the tests
torch.set_num_threads(1)
torch.cuda.reset_peak_memory_stats = lambda *_: None
trained.get_actor = classmethod(lambda cls, config: InProcess(cls(config)))
home = Path(os.environ["TUFT_HOME"])
settings = {"model_name": Path(model).name, "model_path": model, "max_model_len": 2048}
settings |= {"capabilities": ["training"], "max_lora_rank": 32, "max_loras": 8}
users = {os.environ.get("TINKER_API_KEY", "tml-key-of-a-test"): "tester"}
config = {"checkpoint_dir": str(home / "states"), "supported_models": [settings], "authorized_users": users}
(home / "tuft.yaml").write_text(yaml.safe_dump(config))
import_module("tuft.cli").app(["launch", "--host", "127.0.0.1", "--port", port, "--config", str(home / "tuft.yaml")])
