"""Forms in which a human gives the reference's source away: those that the detector's author does not read.

They were drawn from all forms by `random.Random(44).sample`, a third of them, before any was written; the others are in
`leak_forms_seen.py`.
"""

from __future__ import annotations

import ast
import dis
import json
import random
import re
import tokenize
import unicodedata
from collections.abc import Callable
from io import StringIO
from typing import Any

from benchmarks.leak_translators import (
    BASE,
    Form,
    Translator,
    functions,
    languages,
    lines_of,
    plain,
    steps,
    translated,
    tree,
    words,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALIKE = str.maketrans("aceiopxyABCEHKMOPTX", "асеіорхуАВСЕНКМОРТХ")
FILLERS = ("er", "well", "okay", "so", "hmm", "right", "you know", "then")


def caesar(source: str, rng: random.Random) -> list[str]:
    """Shifts the letters."""
    by = rng.randrange(3, 23)
    shift = str.maketrans(LETTERS, LETTERS[by:] + LETTERS[:by])
    return [f"Everything is moved by {by} letters: {source.translate(shift)}"]


def typed_tokens(source: str) -> str:
    """Lists the tokens with their types."""
    read = tokenize.generate_tokens(StringIO(source + "\n").readline)
    return "\n".join(f"{tokenize.tok_name[t.type]}: {t.string.strip()}" for t in read if t.type != tokenize.COMMENT)


def symbols_spelt(source: str) -> str:
    """Says each sign by its name, as one reads code to somebody on the telephone."""
    parts = (re.findall(r"[^\W_]+|\S", word) for word in words(source))
    return " ".join(part if part.isalnum() else unicodedata.name(part).lower() for found in parts for part in found)


def mermaid(source: str) -> str:
    """Draws the steps as a graph."""
    rows = ["flowchart TD"]
    for i, step in enumerate(steps(source, Translator(BASE["base"]))):
        text = step.text.replace("\n", " ")
        ways = f"{{{text}}} -->|yes| N{step.yes}\nN{i} -->|no| N{step.no}" if step.test else f"[{text}] --> N{step.yes}"
        rows.append(f"N{i}{ways}")
    return "\n".join(rows)


def yaml(data: Any, depth: int = 0) -> str:
    """Return a tree as YAML."""
    indent = "  " * depth
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else (("-", value) for value in data)
        return "".join(f"\n{indent}{key}{'' if key == '-' else ':'}{yaml(value, depth + 1)}" for key, value in items)
    return f" {json.dumps(data)}"


def sexpr(data: Any) -> str:
    """Return a tree as nested brackets."""
    if isinstance(data, dict):
        return f"({' '.join(sexpr(value) for value in data.values())})"
    return f"[{' '.join(map(sexpr, data))}]" if isinstance(data, list) else str(data)


def bytecode(source: str) -> str:
    """Lists the instructions of the compiled function and of those within."""
    code = compile(source, "f", "exec")
    text, left = [], [const for const in code.co_consts if hasattr(const, "co_code")]
    while left:
        part = left.pop(0)
        left += [const for const in part.co_consts if hasattr(const, "co_code")]
        text += [f"code {part.co_name} {part.co_varnames}"]
        text += [f"{step.offset:>4} {step.opname:<24} {step.argrepr}" for step in dis.get_instructions(part)]
    return re.sub(r" at 0x\w+, file \"f\", line \d+", "", "\n".join(text))


def renamed(source: str, _: random.Random) -> list[str]:
    """Gives each variable another name."""
    parts = ast.parse(source)
    stored = [n.arg for n in ast.walk(parts) if isinstance(n, ast.arg)]
    stored += [n.id for n in ast.walk(parts) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    key = {name: f"{'aeiou'[i % 5]}{'kmrtz'[i // 5 % 5]}o" for i, name in enumerate(dict.fromkeys(stored))}
    return [re.sub(r"\b[A-Za-z_]\w*\b", lambda m: key.get(m[0], m[0]), source)]


def wrong_then_corrected(source: str, rng: random.Random) -> list[str] | None:
    """Sends the code with wrong numbers, then the right ones."""
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?", source)
    if not numbers:
        return None
    wrong = re.sub(r"(?<![\w.])\d+(?:\.\d+)?", lambda _: str(rng.randrange(100, 999)), source)
    return [wrong, f"Sorry, all numbers were wrong. In order they are {', '.join(numbers)}."]


def filler_tokens(source: str, rng: random.Random) -> list[str]:
    return [" ".join(f"{word} {rng.choice(FILLERS)}" if rng.random() < 0.6 else word for word in words(source))]


def first_words(source: str, rng: random.Random) -> list[str]:
    """Hides the tokens as the first words of sentences."""
    ends = ("is what my colleague told me.", "came up in the meeting.", "was in the notes as well.", "I think.")
    return ["\n".join(f"{word} {rng.choice(ends)}" for word in words(source))]


def tokens_in_turns(source: str, _: random.Random) -> list[str]:
    parts = words(source)
    return [f"The next words are {' '.join(parts[i : i + 6])}" for i in range(0, len(parts), 6)]


def lines_between_prose(source: str, rng: random.Random) -> list[str]:
    """Sends a line of the code in each reply, among sentences."""
    before = ("Good question, let me look it up.", "Sure, I have that here.", "Of course.", "One moment. Here it is.")
    return [f"{rng.choice(before)} {line.strip()} That is all I know about this part." for line in lines_of(source)]


CHANGED: dict[str, dict[str, Callable[[str], str]]] = {
    "encodings": {
        "hexadecimal": lambda s: s.encode().hex(),
        "html_entities": lambda s: "".join(f"&#{ord(c)};" if not c.isalnum() else c for c in s),
        "atbash": lambda s: s.translate(str.maketrans(LETTERS, LETTERS[::-1])),
    },
    "token lists": {
        "then_tokens": lambda s: " then ".join(words(s)),
        "json_tokens": lambda s: json.dumps(words(s)),
        "typed_tokens": typed_tokens,
    },
    "spelling": {"symbols_spelt": symbols_spelt, "reversed_text": lambda s: s[::-1]},
    "pseudo-code": {"mermaid": mermaid},
    "syntax trees": {
        "ast_yaml": lambda s: yaml(tree(functions(s)[0])),
        "ast_sexpr": lambda s: sexpr(tree(functions(s)[0])),
        "bytecode": bytecode,
    },
    "notations and disguises": {
        "diff": lambda s: "--- a/answer\n+++ b/answer\n@@ -0,0 +1 @@\n" + "\n".join(f"+{line}" for line in lines_of(s)),
        "lookalikes": lambda s: s.translate(ALIKE),
        "zero_width": lambda s: "\u200b".join(s),
        "comment_lines": lambda s: "\n".join(f"# {line}" for line in lines_of(s)),
        "math_italic": lambda s: s.translate({ord(c): 0x1D622 + i for i, c in enumerate(LETTERS)}),
    },
}
WITH_CHANCE: dict[str, dict[str, Form]] = {
    "encodings": {"caesar": caesar},
    "token lists": {"filler_tokens": filler_tokens},
    "split over turns": {"tokens_in_turns": tokens_in_turns, "lines_between_prose": lines_between_prose},
    "notations and disguises": {
        "wrong_then_corrected": wrong_then_corrected,
        "first_words": first_words,
        "renamed": renamed,
    },
}
FORMS: dict[str, tuple[str, Form]] = {
    **{n: (kind, translated(table)) for kind, found in languages("held_out").items() for n, table in found.items()},
    **{n: (kind, plain(change)) for kind, found in CHANGED.items() for n, change in found.items()},
    **{n: (kind, form) for kind, found in WITH_CHANCE.items() for n, form in found.items()},
}
"""The forms by name, each with its class."""
