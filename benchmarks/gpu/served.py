"""What asks a vllm that sweet has started: the package `openai`, an agent that calls tools, a program by the gateway.

The models are the packaged agents in a folder of their own, so that their weights are real and they are served.
`difference` is the greatest difference of a token's log-probability, as the client receives it, to that of transformers
in fp32 over the same ids, `plain_difference` that of transformers in bf16; `exact` is whether the first is at most
twice the second. `with_ids` and `with_logprobs` are the shares of the agent's turns that are recorded with these; a
rollout without a gateway asks for no log-probabilities.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import openai
import torch

import sweet
from benchmarks.gpu.checkout import ROOT
from benchmarks.gpu.results import Figures, Part, Settings, Skipped
from sweet.llm.local import LocalServing
from sweet.llm.pretrained import load_model
from sweet.llm.vllm import find_vllm
from sweet.tasks.packaged import PACKAGED
from sweet.tasks.registry import task_kind

REPLIES, TOKENS = 4, 64
"""Replies that the client asks for at once, and their tokens at most."""


def parts(settings: Settings) -> Sequence[Part]:
    folder, tasks = settings.work / "served", 2 if settings.tiny else 64
    return [
        Part("openai client", partial(client, folder / "client", tasks)),
        Part("tools", partial(played, folder / "tools", "desk", "desk", tasks, max_turns=3)),
        Part("gateway", partial(gateway, folder / "gateway", tasks)),
    ]


def gateway(folder: Path, tasks: int) -> Figures:
    """Play with the program that docs/gateway.md shows, which asks by `openai`."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs/gateway.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "agent.py"
    program.write_text(found[1], encoding="utf-8")
    return played(folder, "code", "micro", tasks, harness=f"{sys.executable} {program}")


def model_in(folder: Path, name: str) -> str:
    """Return a folder with a packaged agent; by its name it would not be served.

    Raises:
        Skipped: vllm is not installed.
    """
    if find_vllm() is None:
        raise Skipped("vllm is not installed")
    return str(shutil.copytree(PACKAGED[name], folder / name, dirs_exist_ok=True))


def played(folder: Path, kind: str, agent: str, tasks: int, **settings: Any) -> Figures:
    """Play and score dialogues with a served agent."""
    model = model_in(folder, agent)
    shutil.rmtree(folder / "run", ignore_errors=True)
    run = sweet.Run.create(folder / "run", kind)
    config = {"task": kind, "tasks": agent, "agent": model, "num_tasks": tasks, "local_engine": "vllm", **settings}
    rollout: Figures = sweet.rollout(run, sweet.RolloutConfig.model_validate(config)).metrics.as_json()
    success = sweet.evaluate(run).metrics.success_rate
    turns = [row.dialogue_history[turn] for row in sweet.read_trajectories(run) for turn in row.agent_turns]
    names = ("episodes", "failed", "outcomes", "completion_tokens", "tool_calls", "tool_errors", "seconds")
    return {
        **{name: rollout.get(name) for name in names},
        "with_ids": sum(turn.token_ids is not None for turn in turns) / max(len(turns), 1),
        "with_logprobs": sum(turn.logprobs is not None for turn in turns) / max(len(turns), 1),
        "success": success and success.value,
    }


def client(folder: Path, tasks: int) -> Figures:
    """Compare the log-probabilities that a client of `openai` receives with those of transformers."""
    model = model_in(folder, "desk")
    local = LocalServing(engine="vllm", options=("--dtype", "bfloat16"), logs=str(folder / "vllm-"))
    local.plan([(model, ())])
    answers = asyncio.run(_answers(model, local, tasks))
    received = [torch.tensor([token.logprob for token in choice.logprobs.content]) for _, choice in answers]
    expected, plain = _expected(model, "float32", answers), _expected(model, "bfloat16", answers)

    def difference(values: Sequence[torch.Tensor]) -> float:
        return max(float((one - other).abs().max()) for one, other in zip(values, expected, strict=True))

    found, rounding = difference(received), difference(plain)
    return {
        "tokens": sum(len(one) for one in received),
        "difference": found,
        "plain_difference": rounding,
        "exact": found <= 2 * rounding,
        "version": local.record.get("agent_vllm_version"),
    }


async def _answers(model: str, local: LocalServing, tasks: int) -> list[tuple[list[int], Any]]:
    """Return the ids of the prompt and the choice for each reply."""
    asked = task_kind("desk").load("desk", "test")[:tasks]
    async with local.serve(model, "agent") as url, openai.AsyncOpenAI(base_url=url, api_key="none") as api:
        answers: list[Any] = await asyncio.gather(
            *(
                api.chat.completions.create(
                    model=model,
                    messages=[{"role": "user", "content": task.problem_description}],
                    n=REPLIES,
                    max_tokens=TOKENS,
                    seed=number,
                    logprobs=True,
                    extra_body={"return_token_ids": True},
                )
                for number, task in enumerate(asked)
            )
        )
    return [(answer.prompt_token_ids, choice) for answer in answers for choice in answer.choices]


def _expected(name: str, dtype: str, answers: Sequence[tuple[list[int], Any]]) -> list[torch.Tensor]:
    """Return the log-probabilities of each reply's tokens by the model's own forward pass."""
    model, found = load_model(name, dtype=dtype), []
    for prompt, choice in answers:
        ids = torch.tensor([prompt + choice.token_ids], device=model.device)
        with torch.inference_mode():
            logprobs = model(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        found.append(logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu())
    return found
