"""The builders as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweet.tasks.trajectory import Trajectory
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer, build_trajectory


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Any]:
    return {name: build_tokenizer(template) for name, template in TEMPLATES.items()}


@pytest.fixture(scope="session")
def tokenizer(tokenizers: dict[str, Any]) -> Any:
    return tokenizers["chatml"]


@pytest.fixture
def make_trajectory() -> Callable[..., Trajectory]:
    return build_trajectory


@pytest.fixture
def make_model(tokenizer: Any) -> Callable[..., Any]:
    def make(seed: int = 0, family: str = "llama", width: int = 32) -> Any:
        return build_model(len(tokenizer), seed, family, width)

    return make
