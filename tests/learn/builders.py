"""Builders for tests: small tokenizers with the chat templates of several families, tiny random models, dialogues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    import torch

REQUEST = "Write def fee(hours) for a parking lot."

SPECIAL = [
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<bos>",
    "<start_of_turn>",
    "<end_of_turn>",
]

TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama3": (
        "{{ '<|begin_of_text|>' }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
        "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    # Rewrites history: only the last reply has an empty thought.
    "qwen": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% if m['role'] == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
        "{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "gemma": (
        "{{ '<bos>' }}{% for m in messages %}{% if m['role'] == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}<start_of_turn>"
        "{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
}

LLAMA31 = (
    "{{ '<|begin_of_text|>' }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    "{{ system }}<|eot_id|>{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
"""As the template of Llama 3.1: it writes a system message in any case, which begins with two lines of its own."""

CORPUS = [
    "assistant\n\n",
    "model\n\n",
    "system user assistant model You help a person. The reference solution is: def fee(hours): return hours * 5",
    "Is there a limit? What is the rate per hour? It is 5 per hour. I do not know. I WANT TO ANSWER: def price(n):",
    "In light that the final answer is: no. Zyxwv <think> </think> question answer 0 1 2 3 4 5 6 7 8 9",
]

SYSTEM = "You help a person."


def build_tokenizer(
    template: str | None, *, plain_regex: bool = False, special: Sequence[str] = SPECIAL, size: int = 480
) -> Any:
    """A byte-level BPE of `size` tokens, with `template` as its chat template.

    `plain_regex` splits as GPT-2 does: a run of line ends is cut differently before a word than at the end of a text.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    words = Regex(r"\s*[\r\n]+|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=plain_regex)
    split = pre_tokenizers.Split(words, behavior="isolated")
    tokenizer.pre_tokenizer = byte_level if plain_regex else pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    make: Any = PreTrainedTokenizerFast
    fast = make(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<|im_end|>")
    fast.chat_template = template
    return fast


def build_model(
    vocabulary: int, seed: int = 0, family: str = "llama", width: int = 32, *, layers: int = 2, tied: bool = True
) -> Any:
    """A random model; `tied`: its output layer is its embedding."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "pad_token_id": 0,
        "bos_token_id": 3,
        "eos_token_id": 2,
        "tie_word_embeddings": tied,
    }
    if family.startswith("gemma"):
        settings |= {"head_dim": 8, "initializer_range": 0.3}
    else:
        settings |= {"initializer_range": 0.2}
    if family == "deepseek_v3":
        settings |= {"num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16}
        settings |= {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    torch.manual_seed(seed)
    make: Any = AutoModelForCausalLM.from_config
    return make(AutoConfig.for_model(family, **settings)).eval()


def build_task(name: str) -> Task:
    return Task(
        id=name,
        problem_description=REQUEST,
        ground_truth="def fee(hours): return hours * 5",
        test_cases={"a": "fee(1)"},
    )


def build_trajectory(
    name: str = "t1", turns: int = 3, reward: float | None = None, task: str = "task-1", **changes: Any
) -> Trajectory:
    """A dialogue in which the agent speaks `turns` times."""
    history = [Turn(role="user", content=REQUEST)]
    for number in range(turns):
        last = number == turns - 1
        said = f"I WANT TO ANSWER: def fee(hours): return hours * {name}" if last else f"What is rate {number}? {name}"
        history.append(Turn(role="assistant", content=said, output=said))
        if not last:
            history.append(Turn(role="user", content=f"It is {number + 5} per hour."))
    fields = {"id": name, "task": build_task(task), "dialogue_history": tuple(history), "reward": reward} | changes
    return Trajectory.model_validate(fields)


def assert_trained_alike(found: torch.Tensor, expected: torch.Tensor, case: str = "") -> None:
    """Assert that two trainings, whose sums may have another order, end with the same weights of a tensor.

    AdamW divides a gradient by its own size. The direction of a weight whose gradient is nothing but rounding is a
    matter of chance, so that one weight in 32 may differ.
    """
    import torch

    differing = int((~torch.isclose(found, expected, rtol=1e-3, atol=1e-5)).sum())
    assert differing <= expected.numel() // 32, (case, differing, float((found - expected).abs().max()))
