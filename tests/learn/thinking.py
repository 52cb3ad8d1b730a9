"""Thinking agents: templates that behave as those of Qwen3, the distilled DeepSeek-R1 and gpt-oss, with tiny models.

The texts of the templates are our own. What they share with their models is where a thought is written and when it is
dropped: the first writes thoughts after the last request alone and an empty one where there is none; the second drops
whatever precedes `</think>` and opens a thought in the generation prompt; the third has a channel for thoughts, drops
that of every turn but the last, and ends a reply with another token than it has in the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweet.tasks.trajectory import Trajectory, Turn, shared_prompts
from tests.learn.builders import REQUEST, SPECIAL, build_model, build_task, build_tokenizer

TAGS = ["<think>", "</think>"]
"""Tokens, but no special ones: they are a part of decoded text."""

ENDS = {"qwen3": "<|im_end|>", "r1": "<|eos|>", "gpt-oss": "<|return|>"}

OPENINGS = {
    "qwen3": "<think>\n{}\n</think>\n\n",
    "r1": "{}\n</think>\n\n",
    "gpt-oss": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
}
"""What a model writes after the generation prompt and before its reply, around its thought."""

THINKING = {
    "qwen3": (
        "{%- set last = namespace(request=-1) -%}"
        "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.request = loop.index0 -%}{%- endif -%}"
        "{%- endfor -%}"
        "{%- for m in messages -%}{%- set said = m.content -%}{%- set thought = '' -%}"
        "{%- if m.role == 'assistant' -%}"
        "{%- if m.reasoning_content is string -%}{%- set thought = m.reasoning_content -%}"
        "{%- elif '</think>' in said -%}"
        "{%- set thought = said.split('</think>')[0].split('<think>')[-1] -%}"
        "{%- set said = said.split('</think>')[-1].lstrip('\\n') -%}{%- endif -%}"
        "{%- if loop.index0 > last.request and (loop.last or thought) -%}"
        "{%- set said = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + said -%}{%- endif -%}{%- endif -%}"
        "{{- '<|im_start|>' + m.role + '\\n' + said + '<|im_end|>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
        "{%- if enable_thinking is defined and not enable_thinking -%}"
        "{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}"
    ),
    "r1": (
        "{{- '<|bos|>' -}}{%- for m in messages -%}{%- if m.role == 'system' -%}{{- m.content -}}"
        "{%- elif m.role == 'user' -%}{{- '<|user|>' + m.content -}}"
        "{%- else -%}{{- '<|assistant|>' + m.content.split('</think>')[-1] + '<|eos|>' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|assistant|><think>\\n' -}}{%- endif -%}"
    ),
    "gpt-oss": (
        "{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' -}}"
        "{%- for m in messages -%}"
        "{%- if m.role == 'system' -%}{{- '<|start|>developer<|message|>' + m.content + '<|end|>' -}}"
        "{%- elif m.role == 'user' -%}{{- '<|start|>user<|message|>' + m.content + '<|end|>' -}}"
        "{%- else -%}{%- set is_last = loop.last and not add_generation_prompt -%}"
        "{%- if is_last and m.thinking -%}"
        "{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' -}}{%- endif -%}"
        "{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if is_last else '<|end|>') -}}"
        "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}"
    ),
}

_MORE = ["<|bos|>", "<|user|>", "<|assistant|>", "<|eos|>"]
_MORE += ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"]


def thinking_tokenizer(family: str) -> Any:
    """A tokenizer with the template of a family, its end of a reply and its tags."""
    tokenizer = build_tokenizer(THINKING[family], special=[*SPECIAL, *_MORE], size=500)
    tokenizer.add_tokens(TAGS)
    tokenizer.eos_token = ENDS[family]
    return tokenizer


def thinking_model(tokenizer: Any, seed: int = 0) -> Any:
    """A random model that ends its replies as the template does."""
    model = build_model(len(tokenizer), seed, tied=False)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def teach(model: Any, tokenizer: Any, dialogues: Sequence[tuple[str, str]], *, steps: int = 60) -> None:
    """Train a model on (prompt, what it writes) until it writes that, or nearly that, by itself."""
    import torch

    pairs = [tokenizer([prompt, prompt + said], add_special_tokens=False)["input_ids"] for prompt, said in dialogues]
    width = max(len(row) for _, row in pairs)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for _, row in pairs])
    labels = torch.tensor(
        [[*[-100] * len(prompt), *row[len(prompt) :], *[-100] * (width - len(row))] for prompt, row in pairs]
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.eval()
    model.zero_grad()


def thinking_agent(folder: Path, family: str = "qwen3", *, steps: int = 60) -> str:
    """A tiny saved model that has learned to think before it asks and before it answers."""
    from sweet.learn.trainee import save_model

    tokenizer = thinking_tokenizer(family)
    model = thinking_model(tokenizer)
    messages = [{"role": "user", "content": REQUEST}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    said = ["What is the rate per hour?", "Is there a limit?", "I WANT TO ANSWER: def fee(hours): return hours * 5"]
    thought = ["I do not know the rate.", "Is it 5 per hour?", "It is 5 per hour. The question is: no limit."]
    texts = [OPENINGS[family].format(t) + s + ENDS[family] for t, s in zip(thought, said, strict=True)]
    teach(model, tokenizer, [(prompt, text) for text in texts], steps=steps)
    folder.mkdir(parents=True)
    save_model(model, tokenizer, folder)
    return str(folder)


def render(tokenizer: Any, dialogue: Sequence[Turn], system: str | None = None, **how: Any) -> str:
    """The prompt of the next turn after these, as a server renders it."""
    rows = [{"role": "system", "content": system}] if system else []
    rows += [{"role": turn.role, "content": turn.content} for turn in dialogue]
    return str(tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True, **how))


def play(
    tokenizer: Any, family: str, turns: int = 3, *, recorded: bool = True, name: str = "t1", task: str = "task-1"
) -> Trajectory:
    """A dialogue whose agent thinks before each reply, played under the family's template.

    Args:
        recorded: keep the ids of prompts and replies, of which every second reply is split into other tokens than the
            tokenizer would give: what a model samples is not what a tokenizer writes.
    """
    history = [Turn(role="user", content=REQUEST)]
    prompts: dict[int, tuple[int, ...]] = {}
    for number in range(turns):
        last = number == turns - 1
        said = f"I WANT TO ANSWER: def fee(hours): return hours * {name}" if last else f"What is rate {number}? {name}"
        thought = f"I do not know rate {number} of the person. It is 5 per hour. {name}"
        fields: dict[str, Any] = {}
        if recorded:
            texts = [OPENINGS[family].format(thought), said]
            marked, spoken = tokenizer(texts, add_special_tokens=False)["input_ids"]
            if number % 2:
                spoken = [i for text in said for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
            end = tokenizer.convert_tokens_to_ids(ENDS[family])
            prompt = tokenizer(render(tokenizer, history), add_special_tokens=False)["input_ids"]
            prompts[len(history)] = tuple(prompt)
            fields = {"token_ids": (*marked, *spoken, end), "thought_tokens": len(marked)}
        turn = Turn(role="assistant", content=said, output=said, thought=thought, finish_reason="stop", **fields)
        history.append(turn)
        if not last:
            history.append(Turn(role="user", content=f"It is {number + 5} per hour."))
    return Trajectory(
        id=name, task=build_task(task), dialogue_history=shared_prompts(history, prompts), agent_system=""
    )
