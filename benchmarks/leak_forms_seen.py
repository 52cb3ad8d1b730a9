"""Forms in which a human gives the reference's source away: those that the detector's author may read.

Each is a faithful transformation: who knows the form gets the function (nearly) back. `leak_forms_held_out.py` has
others, drawn at random by form.
"""

from __future__ import annotations

import ast
import base64
import codecs
import dis
import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from benchmarks.leak_translators import (
    BASE,
    Form,
    Translator,
    functions,
    languages,
    leaves,
    lines_of,
    plain,
    steps,
    translated,
    tree,
    words,
)

LANGUAGES = languages("seen")
STEPS = Translator(
    {**BASE["words"], **{k: v for k, v in LANGUAGES["verbal code"]["english"].items() if k.startswith("op.")}}
)


def in_turns(change: Callable[[list[str], random.Random], list[str]]) -> Form:
    """Return the form that makes replies of the lines of a source."""
    return lambda source, rng: change(lines_of(source), rng)


def shuffled(items: list[str], rng: random.Random) -> list[tuple[int, str]]:
    return rng.sample(list(enumerate(items, 1)), len(items))


def token_index(source: str, _: random.Random) -> list[str]:
    """Numbers each different token, then lists the numbers in order."""
    known = list(dict.fromkeys(words(source)))
    key = ", ".join(f"{i} is {word}" for i, word in enumerate(known))
    return [f"Remember these: {key}.", " ".join(str(known.index(word)) for word in words(source))]


def assembly(source: str, _: random.Random) -> list[str] | None:
    """Says the code as instructions of a stack machine."""
    function = next(const for const in compile(source, "source", "exec").co_consts if hasattr(const, "co_code"))
    if any(hasattr(const, "co_code") for const in function.co_consts):
        return None
    names = {"LOAD": "push", "STORE": "pop", "RETURN": "ret", "COMPARE": "cmp", "BINARY": "alu", "POP": "jz"}
    rows = (
        f"{step.offset:03} {names.get(step.opname.split('_')[0], step.opname.lower())} {step.argrepr}"
        for step in dis.get_instructions(function)
    )
    return ["\n".join([f"; {function.co_name} {' '.join(function.co_varnames[: function.co_argcount])}", *rows])]


def letters_with_key(source: str, _: random.Random) -> list[str]:
    """Replaces the names by letters and tells them in the last reply."""
    names = list(dict.fromkeys(n for n in re.findall(r"[A-Za-z_]\w+", source) if len(n) > 2))
    key = {name: f"{chr(65 + i % 26)}{i // 26 or ''}" for i, name in enumerate(names)}
    code = re.sub(r"[A-Za-z_]\w+", lambda m: key.get(m[0], m[0]), source)
    return [code, "and the letters: " + ", ".join(f"{letter} = {name}" for name, letter in key.items())]


def implications(source: str, _: random.Random) -> list[str]:
    """Says each statement as a consequence of the tests that lead to it."""
    say, rows = Translator({**BASE["base"], "return": "result = $value"}), []

    def walk(body: list[ast.stmt], given: list[str]) -> None:
        for node in body:
            if isinstance(node, ast.If):
                walk(node.body, [*given, say.say(node.test)])
                walk(node.orelse, [*given, f"!({say.say(node.test)})"])
            else:
                rows.append(f"{' & '.join(given) or 'always'} => {say.statement(node)}")

    walk(functions(source)[0].body, [])
    return [functions(source)[0].name + "\n" + "\n".join(rows)]


def decision_tree(source: str, _: random.Random) -> list[str]:
    """Draws the tests as branches."""
    rows, found = [], steps(source, Translator(BASE["base"]))
    for i, step in enumerate(found):
        branch = f"?  +--yes--> [{step.yes}]  +--no--> [{step.no}]" if step.test else f"  ---> [{step.yes}]"
        rows.append(f"[{i}] {step.text}{branch}")
    return ["\n".join(rows)]


def acrostic(source: str, rng: random.Random) -> list[str]:
    """Hides the letters as the first ones of lines; other characters begin a line themselves."""
    fill = ("is what we agreed", "goes with the plan", "can wait for now", "was on my list", "seems right to me")
    return [
        "\n".join(f"{c} {rng.choice(fill)}" for c in "\n".join(lines_of(source)).replace(" ", "_").replace("\n", "/"))
    ]


def holes_filled(source: str, rng: random.Random) -> list[str]:
    """Sends the source with holes, then what fills them."""
    parts = words(source)
    holes = sorted(rng.sample(range(len(parts)), len(parts) // 3))
    text = " ".join(f"__{holes.index(i) + 1}__" if i in holes else word for i, word in enumerate(parts))
    return [text, "; ".join(f"{n}) {parts[i]}" for n, i in enumerate(holes, 1))]


def emoji_key(source: str, _: random.Random) -> list[str]:
    """Replaces operators and keywords by pictures, with a key."""
    key = dict(
        zip(
            ("if", "return", "for", "else", "=", "(", ")", ":", "+", "*", "<", ">"),
            "🍎🚗🎈🌙⭐🔥🐸🍀🎲🧊👈👉",
            strict=True,
        )
    )
    said = " ".join(key.get(word, word) for word in words(source))
    return [" ".join(f"{picture} means {word}." for word, picture in key.items()), said]


def outline(data: Any, depth: int = 0) -> list[str]:
    """Return a tree as a list of points within points."""
    if not isinstance(data, dict | list):
        return [f"{'  ' * depth}- {data}"]
    items = data.items() if isinstance(data, dict) else enumerate(data, 1)
    return [row for key, value in items for row in (f"{'  ' * depth}- {key}", *outline(value, depth + 1))]


def xml(data: Any, tag: str = "function") -> str:
    """Return a tree as XML."""
    inner = (
        data.items()
        if isinstance(data, dict)
        else [("item", value) for value in data]
        if isinstance(data, list)
        else None
    )
    return f"<{tag}>{''.join(xml(v, k) for k, v in inner) if inner is not None else data}</{tag}>"


def pig_latin(match: re.Match[str]) -> str:
    word = match[0]
    return word + "way" if word[0] in "aeiou" else word[1:] + word[0] + "ay"


def misspelt(match: re.Match[str]) -> str:
    word = match[0]
    return word[0] + word[2] + word[1] + word[3:]


def alphabet(letters: str, said: str) -> dict[str, str]:
    """Return what each letter is called."""
    return dict(zip(letters, said.split(), strict=True))


LETTERS = "abcdefghijklmnopqrstuvwxyz"
MORSE = alphabet(
    LETTERS + "0123456789",
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.. "
    "----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----.",
)
NATO = alphabet(
    LETTERS,
    "alfa bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa quebec romeo "
    "sierra tango uniform victor whiskey xray yankee zulu",
)
ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base32": lambda s: base64.b32encode(s.encode()).decode(),
    "base85": lambda s: base64.b85encode(s.encode()).decode(),
    "gzip_base64": lambda s: base64.b64encode(gzip.compress(s.encode(), mtime=0)).decode(),
    "rot13": lambda s: codecs.encode(s, "rot13"),
    "morse": lambda s: " ".join(MORSE.get(c.lower(), c if c.strip() else "/") for c in s),
    "bits": lambda s: " ".join(f"{byte:08b}" for byte in s.encode()),
    "char_codes": lambda s: " ".join(str(ord(c)) for c in s),
    "octal": lambda s: " ".join(f"{byte:o}" for byte in s.encode()),
    "percent": lambda s: quote(s, safe=""),
}
SPELLING: dict[str, Callable[[str], str]] = {
    "hyphen_letters": lambda s: "-".join(s),
    "nato": lambda s: " ".join(NATO.get(c.lower(), c if c.strip() else "space") for c in s),
    "spaced_letters": lambda s: "   ".join(" ".join(word) for word in words(s)),
    "pig_latin": lambda s: re.sub(r"[a-z]+", pig_latin, s),
    "misspelt": lambda s: re.sub(r"[a-z]{4,}", misspelt, s),
    "vowels_dropped": lambda s: re.sub(r"(?<=[a-z])[aeiou]", "", s),
}
CHANGED: dict[str, dict[str, Callable[[str], str]]] = {
    "encodings": ENCODINGS,
    "spelling": SPELLING,
    "token lists": {
        "comma_tokens": lambda s: ", ".join(words(s)),
        "numbered_tokens": lambda s: "\n".join(f"{i}. {word}" for i, word in enumerate(words(s), 1)),
        "reversed_tokens": lambda s: " ".join(reversed(words(s))),
    },
    "pseudo-code": {
        "flow_steps": lambda s: "\n".join(
            f"Box {i}: {p.text}" + (f"? yes: box {p.yes}, no: box {p.no}" if p.test else f". Next is box {p.yes}")
            for i, p in enumerate(steps(s, Translator(BASE["base"])))
        ),
        "goto_steps": lambda s: "\n".join(
            f"({i}) when {p.text} go to {p.yes}, else go to {p.no}" if p.test else f"({i}) {p.text} then go to {p.yes}"
            for i, p in enumerate(steps(s, STEPS))
        ),
    },
    "syntax trees": {
        "ast_dump": lambda s: ast.dump(functions(s)[0]),
        "ast_json": lambda s: json.dumps(tree(functions(s)[0])),
        "ast_xml": lambda s: xml(tree(functions(s)[0])),
        "ast_paths": lambda s: "\n".join(f"{path} = {value}" for path, value in leaves(tree(functions(s)[0]))),
        "ast_outline": lambda s: "\n".join(outline(tree(functions(s)[0]))),
    },
    "notations and disguises": {
        "line_table": lambda s: "\n".join(["|n|text|", "|-|-|", *(f"|{i}|{x}|" for i, x in enumerate(lines_of(s)))]),
        "fullwidth": lambda s: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s),
        "sed_script": lambda s: "\n".join(f"{i}s/^$/{line}/" for i, line in enumerate(lines_of(s), 1)),
        "questions": lambda s: "\n".join(f"Is line {i} `{x.strip()}`? Yes." for i, x in enumerate(lines_of(s), 1)),
        "mail_quote": lambda s: "On Monday Ann wrote:\n" + "\n".join(f"> {line}" for line in lines_of(s)),
        "csv_cells": lambda s: "\n".join(";".join(f'"{word}"' for word in words(line.strip())) for line in lines_of(s)),
    },
}  # fmt: skip
WITH_CHANCE: dict[str, dict[str, Form]] = {
    "programming languages": {"assembly": assembly},
    "token lists": {
        "shuffled_tokens": lambda s, rng: [" ".join(f"{word}@{i}" for i, word in shuffled(words(s), rng))],
        "token_index": token_index,
    },
    "split over turns": {
        "lines_in_turns": in_turns(lambda lines, _: lines),
        "numbered_lines_shuffled": in_turns(lambda lines, rng: [f"line {i}: {x}" for i, x in shuffled(lines, rng)]),
        "odd_even": in_turns(lambda lines, _: ["\n".join(lines[::2]), "\n".join(lines[1::2])]),
        "columns": in_turns(lambda x, _: ["\n".join(y[:14] for y in x), "\n".join(y[14:] or "-" for y in x)]),
        "last_first": in_turns(lambda lines, _: lines[::-1]),
        "letters_with_key": letters_with_key,
        "alternate_chars": lambda s, _: [s[::2], s[1::2]],
    },
    "notations and disguises": {
        "acrostic": acrostic,
        "implications": implications,
        "emoji_key": emoji_key,
        "decision_tree": decision_tree,
        "holes_filled": holes_filled,
    },
}  # fmt: skip
FORMS: dict[str, tuple[str, Form]] = {
    **{name: (kind, translated(table)) for kind, found in LANGUAGES.items() for name, table in found.items()},
    **{name: (kind, plain(change)) for kind, found in CHANGED.items() for name, change in found.items()},
    **{name: (kind, form) for kind, found in WITH_CHANCE.items() for name, form in found.items()},
}
"""The forms by name, each with its class."""
