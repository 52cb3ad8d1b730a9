"""Build the packaged agents again: a byte-level BPE tokenizer, a small Llama, imitation of scripted dialogues.

    python -m docs.tools.micro_agent DIR [DATASETS [DIALOGUES]]

builds the agent micro into a new folder, in a few minutes on one CPU core. The agent micro-parts is that of
`micro-long,micro-parts 80000`: half of its dialogues are from each of the two other datasets. `desk` builds an agent
for the dataset of this name, which calls tools.

The training text is token by token what the tokenizer's chat template renders in a rollout. The loss has weight 1 on
the agent's turns (with the end-of-turn token), more on the values in its answers (few tokens, and the hardest to copy),
less on the human's replies (from them the model learns to read c without learning to behave differently), and 0 on the
request and c. Batches contain dialogues of similar length, padded on the right, where causal attention cannot see the
padding. None of the functions is in the dataset, and the rules are not the typical ones, so that what to ask for
remains to be learned.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from docs.tools import desk_dialogues
from docs.tools.micro_dialogues import cloning_dialogues
from sweet.tasks.base import Message, chat_rows
from sweet.tasks.desk.tools import TOOLS
from sweet.tasks.micro.family import FAMILIES, MICRO
from sweet.tasks.toolboxes.functions import tool_of
from sweet.units import count

if TYPE_CHECKING:
    import torch

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"
TOOL, CALL, END_OF_CALL = "<|tool|>", "<tool_call>", "</tool_call>"
DESK = "desk"

_PROMPT = f"{{%- if add_generation_prompt -%}}{{{{- '{ASSISTANT}' -}}}}{{%- endif -%}}"
CHAT_TEMPLATE = (
    "{#- System messages are left out: the model was trained for one task and has never seen instructions. -#}"
    "{%- for message in messages if message.role != 'system' -%}"
    f"{{{{- ('{ASSISTANT}' if message.role == 'assistant' else '{USER}') + message.content + '{END}' -}}}}"
    "{%- endfor -%}"
    f"{_PROMPT}"
)
CHAT_TEMPLATE_WITH_TOOLS = (
    "{#- System messages are left out: the model was trained for one task and has never seen instructions.\n"
    "Of the tools there are only the names. -#}"
    "{%- if tools -%}"
    f"{{{{- '{TOOL}' + tools | map(attribute='function.name') | join(', ') + '{END}' -}}}}"
    "{%- endif -%}"
    "{%- for message in messages if message.role != 'system' -%}"
    f"{{{{- {{'assistant': '{ASSISTANT}', 'tool': '{TOOL}'}}.get(message.role, '{USER}') -}}}}"
    "{{- message.content or '' -}}"
    "{%- for call in message.tool_calls or [] -%}"
    f"{{{{- '{CALL}{{\"name\": ' + call.function.name | tojson -}}}}"
    f"{{{{- ', \"arguments\": ' + call.function.arguments | tojson + '}}{END_OF_CALL}' -}}}}"
    "{%- endfor -%}"
    f"{{{{- '{END}' -}}}}"
    "{%- endfor -%}"
    f"{_PROMPT}"
)
"""Calls are written as by Hermes and Qwen."""

PIECES = r"\d+|\n?[^\d\n.?:]+[.?:]?|\n|[.?:]"
"""The pieces across which the tokenizer never merges: numbers are separate, so that a value is the same token
everywhere; everything else may merge up to the end of a sentence, a clause or a line, so that dialogues are short."""


_CONTEXT = 2048
_TOKENIZER_DIALOGUES = 10_000


def _families(value: Any) -> tuple[str, ...]:
    """Return names of families, which may be joined by commas; raise ValueError for an unknown one."""
    words = [value] if isinstance(value, str) else list(value)
    names = tuple(dict.fromkeys(name.strip() for word in words for name in str(word).split(",")))
    for name in names if names != (DESK,) else ():
        if name not in FAMILIES:
            raise ValueError(f"there is no generated dataset {name!r}, there are {', '.join(FAMILIES)}")
    if not names:
        raise ValueError("name at least one generated dataset")
    return names


FamilyNames = Annotated[tuple[str, ...], BeforeValidator(_families)]


class AgentRecipe(BaseModel):
    """How an agent is built; the defaults build the packaged agent micro."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: FamilyNames = (MICRO.name,)
    """Generated datasets that it is to play, equally many dialogues of each: micro, micro-long, micro-parts; or desk
    alone."""
    seed: int = Field(default=0, ge=0)
    """Seed of the dialogues, the weights and the order."""
    dialogues: int = Field(default=40_000, ge=1)
    """Scripted dialogues to imitate."""
    epochs: int = Field(default=1, ge=1)
    """Passes over them."""
    told_share: float = Field(default=0.3, ge=0, le=1)
    """Share of the dialogues in which the reference function stands in the request."""
    human_weight: float = Field(default=0.3, ge=0)
    """Weight of the human's tokens in the loss."""
    value_weight: float = Field(default=4.0, ge=0)
    """Weight of the numbers in the agent's answers: few tokens, and the hardest to learn."""
    vocabulary: int = Field(default=1024, ge=300)
    """Size of the vocabulary."""
    width: int = Field(default=128, ge=8)
    """Size of the hidden states."""
    layers: int = Field(default=4, ge=1)
    """Transformer blocks."""
    heads: int = Field(default=4, ge=1)
    """Attention heads; they divide the width."""
    feed_forward: int = Field(default=384, ge=8)
    """Inner size of the feed-forward layers."""
    learning_rate: float = Field(default=2e-3, gt=0)
    """Highest learning rate of AdamW."""
    batch_tokens: int = Field(default=1250, ge=64)
    """Tokens of a batch, padding included."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of torch."""


@dataclass(frozen=True)
class BuildResult:
    """What was built: parameters, tokens trained on, steps, and the mean loss of the last tenth of the steps."""

    parameters: int
    tokens: int
    steps: int
    loss: float


@dataclass(frozen=True)
class _Example:
    ids: list[int]
    weights: list[float]


def build_agent(out: Path, *, config: AgentRecipe, say: Callable[[str], None] = lambda _: None) -> BuildResult:
    """Build the agent into the folder `out`, in the Hugging Face layout.

    Args:
        say: called with each line of progress.
    """
    import torch
    from transformers import LlamaForCausalLM

    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            say(f"writing {count(config.dialogues, 'dialogue')}")
            dialogues = list(_dialogues(config))
            tokenizer = _tokenizer(dialogues, config)
            examples = _encode(tokenizer, dialogues, config)
            model = LlamaForCausalLM(_llama(tokenizer, config))
            result = _train(model, examples, config, say)
    finally:
        torch.set_num_threads(threads)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return result


def _dialogues(config: AgentRecipe) -> Iterator[list[dict[str, Any]]]:
    """Yield the dialogues, those of several datasets in turn."""
    if config.tasks == (DESK,):
        told = desk_dialogues.cloning_dialogues(config.dialogues, seed=config.seed, told_share=config.told_share)
        yield from map(_rows, told)
        return
    sources = [
        cloning_dialogues(config.dialogues, seed=config.seed, told_share=config.told_share, family=FAMILIES[name])
        for name in config.tasks
    ]
    for _, messages in islice(chain.from_iterable(zip(*sources, strict=True)), config.dialogues):
        yield [message.model_dump() for message in messages]


def _rows(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as the chat template reads them: arguments of calls are objects."""
    rows = chat_rows(messages)
    for call in [call for row in rows for call in row.get("tool_calls", ())]:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return rows


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """Yield what the tokenizer is trained on."""
    yield message["content"]
    for call in message.get("tool_calls") or ():
        yield json.dumps(call["function"])


def _tokenizer(dialogues: list[list[dict[str, Any]]], config: AgentRecipe) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    with_tools = config.tasks == (DESK,)
    headers = [USER, ASSISTANT, TOOL] if with_tools else [USER, ASSISTANT]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        special_tokens=[PAD, END, *headers],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sample = dialogues[:_TOKENIZER_DIALOGUES]
    said = (text for rows in sample for row in rows if row["role"] != "system" for text in _texts(row))
    numbers = (str(number) for number in range(100) for _ in sample)
    offered = (", ".join(TOOLS) for _ in sample if with_tools)
    core.train_from_iterator(chain(said, numbers, offered), trainer)
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=headers,
        clean_up_tokenization_spaces=False,
        model_max_length=_CONTEXT,
    )
    if with_tools:
        tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in (CALL, END_OF_CALL)])
    tokenizer.chat_template = CHAT_TEMPLATE_WITH_TOOLS if with_tools else CHAT_TEMPLATE
    return tokenizer


def _llama(tokenizer: Any, config: AgentRecipe) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        intermediate_size=config.feed_forward,
        max_position_embeddings=_CONTEXT,
        initializer_range=0.04,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _encode(tokenizer: Any, dialogues: list[list[dict[str, Any]]], config: AgentRecipe) -> list[_Example]:
    tools = [tool_of(tool).row() for tool in TOOLS.values()] if config.tasks == (DESK,) else None
    texts: list[str] = tokenizer.apply_chat_template(dialogues, tokenize=False, tools=tools)
    user, assistant, tool = (tokenizer.get_vocab().get(header) for header in (USER, ASSISTANT, TOOL))
    numbers = {index for piece, index in tokenizer.get_vocab().items() if piece.isdecimal()}
    return [
        _Example(ids, list(_weights(ids, (user, assistant, tool), numbers, config)))
        for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]
    ]


def _weights(
    ids: Iterable[int], headers: tuple[int, int, int | None], numbers: set[int], config: AgentRecipe
) -> Iterator[float]:
    """Yield the weight of each token in the loss; role headers, the request and what tools return have weight 0."""
    user, assistant, tool = headers
    weight, replying, answering = 0.0, False, False
    for token in ids:
        if token == user:
            weight, answering = config.human_weight * replying, False
        elif token == assistant:
            weight, replying, answering = 1.0, True, True
        elif token == tool:
            weight, answering = 0.0, False
        value = config.value_weight if answering and token in numbers else 1.0
        yield 0.0 if token in headers else weight * value


def _batches(examples: list[_Example], config: AgentRecipe) -> list[list[_Example]]:
    """Return all examples of each epoch in batches of similar length, in random order."""
    rng = random.Random(f"sweet micro batches {config.seed}")
    batches: list[list[_Example]] = []
    for _ in range(config.epochs):
        order = sorted(examples, key=lambda example: len(example.ids) + 4 * rng.random())
        batch: list[_Example] = []
        epoch: list[list[_Example]] = []
        for example in order:
            if batch and len(example.ids) * (len(batch) + 1) > config.batch_tokens:
                epoch.append(batch)
                batch = []
            batch.append(example)
        epoch.append(batch)
        rng.shuffle(epoch)
        batches += epoch
    return batches


def _train(model: Any, examples: list[_Example], config: AgentRecipe, say: Callable[[str], None]) -> BuildResult:
    import torch

    batches = _batches(examples, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.05)
    warm_up = min(100, len(batches) // 10 + 1)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, warm_up),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches), config.learning_rate / 50),
        ],
        [warm_up],
    )
    losses: list[float] = []
    model.train()
    for step, batch in enumerate(batches, 1):
        loss = _loss(model, batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step % 100 == 0:
            say(f"step {step:,} of {len(batches):,}: loss {sum(losses[-100:]) / 100:.3f}")
    model.eval()
    last = losses[-max(1, len(losses) // 10) :]
    tokens = sum(len(example.ids) for batch in batches for example in batch)
    return BuildResult(sum(p.numel() for p in model.parameters()), tokens, len(batches), sum(last) / len(last))


def _loss(model: Any, batch: list[_Example]) -> torch.Tensor:
    """Return the mean weighted cross-entropy of a batch."""
    import torch

    longest = max(len(example.ids) for example in batch)
    ids = torch.tensor([example.ids + [0] * (longest - len(example.ids)) for example in batch])
    weights = torch.tensor([example.weights + [0.0] * (longest - len(example.ids)) for example in batch])[:, 1:]
    supervised = weights > 0
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    logits = model.lm_head(hidden[supervised])
    losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][supervised], reduction="none")
    return (losses * weights[supervised]).sum() / weights.sum()


def main(folder: str, tasks: str = MICRO.name, dialogues: str = "40000") -> None:
    """Build an agent into a new folder."""
    out = Path(folder)
    out.mkdir(parents=True)
    size = {"vocabulary": 2048} if tasks == DESK else {}
    print(build_agent(out, config=AgentRecipe(tasks=(tasks,), dialogues=int(dialogues), **size), say=print))


if __name__ == "__main__":
    main(*sys.argv[1:])
