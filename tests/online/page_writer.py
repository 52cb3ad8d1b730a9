"""A tiny model that writes pages, and tasks whose best page it can learn.

The next token depends on the last one alone: attention and feed-forward layers add nothing, so the logits are those of
the output layer for the embedding of one token. After the generation prompt the model writes a page, whose background
is drawn from two colours with equal probability; the references have the second one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweet.learn.trainee import save_model
from tests.learn.builders import build_model, build_tokenizer

BEGIN, END = '<html><body style="margin:0;height:700px;background:', '"></body></html>'
COLOURS = ("#1d4ed8", "#f59e0b")
PAGES = tuple(BEGIN + colour + END for colour in COLOURS)

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<start_of_turn>{% else %}<|im_start|>{{ m['role'] }}\n"
    "{% endif %}{{ m['content'] }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<start_of_turn>{% endif %}"
)


def make_page_writer(folder: Path) -> str:
    """Save the model into a folder, which is made, and return its path."""
    import torch

    tokenizer = build_tokenizer(TEMPLATE)
    tokenizer.add_tokens([BEGIN, *COLOURS, END])
    model: Any = build_model(len(tokenizer), tied=False)

    def token(text: str) -> int:
        return int(tokenizer.convert_tokens_to_ids(text))

    after = {
        "<start_of_turn>": (BEGIN,),
        BEGIN: COLOURS,
        **dict.fromkeys(COLOURS, (END,)),
        END: ("<|im_end|>",),
    }
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings, output = model.model.embed_tokens.weight, model.lm_head.weight
        output.zero_()
        for place, (text, following) in enumerate(after.items()):
            embeddings[token(text)] = torch.nn.functional.one_hot(torch.tensor(place), embeddings.shape[1])
            output[[token(one) for one in following], place] = 3.0  # of a logit of 17, as the norm scales the embedding
    folder.mkdir(parents=True)
    save_model(model, tokenizer, folder)
    return str(folder)


def write_tasks(path: Path, number: int = 4) -> str:
    """Write a file of tasks, and return its path. The split validation is its last task."""
    rows = [
        {
            "id": f"page-{place}",
            "problem_description": f"Page {place}, in a colour that I like.",
            "ground_truth": f'{BEGIN}{COLOURS[1]}"><!-- {place} --></body></html>',
            "split": "validation" if place == number - 1 else "train",
        }
        for place in range(number)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
