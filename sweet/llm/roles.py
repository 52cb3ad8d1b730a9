"""The environment variables and command-line options that belong to each role of a model."""

from __future__ import annotations

import os

from sweet.llm.base import Role

KEY_VARIABLES: dict[Role, tuple[str, ...]] = {
    "agent": ("SWEET_AGENT_API_KEY", "OPENAI_API_KEY"),
    "sim": ("SWEET_SIM_API_KEY", "OPENAI_API_KEY"),
    "judge": ("SWEET_JUDGE_API_KEY", "OPENAI_API_KEY"),
    "describer": ("SWEET_SIM_API_KEY", "OPENAI_API_KEY"),
    "checker": ("SWEET_JUDGE_API_KEY", "OPENAI_API_KEY"),
}
"""Environment variables that are read for an API key; keys are never read from options or files."""

MODEL_OPTIONS: dict[Role, str] = {
    "agent": "agent",
    "sim": "sim",
    "judge": "judge_model",
    "describer": "model",
    "checker": "check_model",
}

URL_OPTIONS: dict[Role, str] = {
    "agent": "agent_url",
    "sim": "sim_url",
    "judge": "judge_url",
    "describer": "url",
    "checker": "check_url",
}


def api_key(role: Role) -> str:
    """The API key; a placeholder if there is none, for servers that do not require one."""
    return next((found for name in KEY_VARIABLES[role] if (found := os.environ.get(name))), "none")
