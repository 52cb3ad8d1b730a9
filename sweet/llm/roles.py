"""What is named after whose model is asked: the variable of its API key, the option of its name."""

from __future__ import annotations

import os

from sweet.llm.base import Role

KEY_VARIABLES: dict[Role, tuple[str, ...]] = {
    "agent": ("SWEET_AGENT_API_KEY", "OPENAI_API_KEY"),
    "sim": ("SWEET_SIM_API_KEY", "OPENAI_API_KEY"),
    "judge": ("SWEET_JUDGE_API_KEY", "OPENAI_API_KEY"),
}
"""Where an API key is looked for; keys are never taken from flags or files."""

MODEL_OPTIONS: dict[Role, str] = {"agent": "--agent", "sim": "--sim", "judge": "--judge-model"}


def api_key(role: Role) -> str:
    """The API key; a word that is none where there is none, for servers that want none."""
    return next((found for name in KEY_VARIABLES[role] if (found := os.environ.get(name))), "none")
