"""What counts as a leak of the reference, and what a person may say."""

from __future__ import annotations

import base64
import codecs
import json
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.humans.leaks import find
from sweet.humans.leaks.find import is_leak, is_source
from sweet.humans.leaks.reading import Atom, atoms_of
from sweet.tasks.base import Message

REFERENCE = """\
def fee(hours, member):
    free = 1
    base = 4.5 * max(hours - free, 0)
    if hours > 12:
        base = base + 20
    if member:
        return round(base * 0.8, 2)
    return base"""
REQUEST = "I need a parking fee. The signature of the function is: def fee(hours, member)"
BODY = REFERENCE.split("\n", 1)[1]
LINES = [line.strip() for line in BODY.split("\n")]


def leak(*replies: str, reference: str = REFERENCE, asked: str = "How is it calculated?") -> bool:
    """Return whether the last reply after the others is a leak."""
    dialogue = [Message(role="user", content=REQUEST)]
    for reply in replies[:-1]:
        dialogue += [Message(role="assistant", content=asked), Message(role="user", content=reply)]
    return is_leak(reference, REQUEST, [*dialogue, Message(role="assistant", content=asked)], replies[-1])


RENAMED = REFERENCE.replace("hours", "h").replace("member", "is_in").replace("base", "cost").replace("free", "f0")
OTHER = """def fee(hours: float, member: bool) -> float:
    '''The fee of a car.'''
    free = 0x1  # the first hour
    base = max(-free + hours, 0.0) * 4.50
    if not hours <= 12: base += 2_0
    if not member:
        return base
    return round(0.80 * base, 2)"""
PSEUDO = (
    "Set base to 4.5 times max(hours minus free, 0). If hours is greater than 12 then set base to base plus 20. "
    "If member then return round(base times 0.8, 2). Otherwise return base."
)

SCRIPT = """function fee(hours, member) {
  const free = 1; // the first hour
  let cost = 4.5 * Math.max(hours - free, 0);
  if (hours > 12) { cost = cost + 20; }
  if (member) {
    return Math.round(cost * 0.8, 2);
  }
  return cost;
}"""
NAMED = (
    "Set `base` to `4.5` times max(`hours` minus `free`, 0). If `hours` is greater than `12`, then set `base` to "
    "`base` plus 20. If `member` is True then return round(`base` times `0.8`, 2). Otherwise return `base`."
)


@pytest.mark.parametrize(
    "reply",
    [
        SCRIPT,
        NAMED,
        f"Sure!\n```python\n{REFERENCE}\n```",
        f"```\n{RENAMED}\n```\nDoes it help?",
        OTHER,
        BODY,
        "; ".join(line.replace(":", ": ") for line in LINES),
        " ".join(LINES),
        "It has these lines: " + ", ".join(f"`{line}`" for line in LINES),
        "\n".join(f"> {line}" for line in REFERENCE.split("\n")),
        "\n".join(f"{i}: {line}" for i, line in enumerate(REFERENCE.split("\n"), 1)),
        "\n".join(f"+{line}" for line in REFERENCE.split("\n")),
        "Here: " + json.dumps({"code": REFERENCE}),
        "Decode this: " + base64.b64encode(REFERENCE.encode()).decode(),
        codecs.encode(REFERENCE, "rot13"),
        REFERENCE.encode().hex(),
        REFERENCE[::-1],
        " ".join(REFERENCE),
        PSEUDO,
        REFERENCE.replace("4.5", "４.５").replace("base", "b\u200base"),
    ],
)
def test_a_reference_is_given_away_in_many_forms(reply: str) -> None:
    assert leak(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "The first hour is free, then it is 4.5 an hour, and above 12 hours it is 20 more. Members pay 80 percent.",
        "It is 4.5 * (hours - 1).",
        "`hours - free`",
        "hours and member",
        "Yes.",
        "fee(3, True) gives 7.2, and fee(13, False) gives 74.0.",
        "```\n>>> fee(3, True)\n7.2\n```",
        "def fee(hours, member)",
        "The base is 4.5 times the hours, if the hours are more than the free hour; members get 20 percent off.",
        "TypeError: unsupported operand type(s) for -: 'str' and 'int' (line 3)",
        "If hours is 14 and the car is a member's, return the fee that a member pays; otherwise the full one.",
        "for i in range(10):\n    print(i)",
        "If `member` is true the price is lower: it is 80 percent of the `base`; else it's the `base` itself.",
        "If the hours > 12, add 20 to it. If it is a member, return 80 percent of it, otherwise all of it.",
        "If it is long, return 'high'. If it is short, return 'low'. Otherwise, return 'medium', or return None.",
        "I can't say; don't you know? It's the member's fee.",
        "The fee \u0131s at least 4.5.",
    ],
)
def test_what_a_person_says_gives_nothing_away(reply: str) -> None:
    assert not leak(reply)
    assert not leak(*[reply] * 5)


TOKENS = re.findall(r"\d+(?:\.\d+)?|\w+|\S", BODY)
MORSE = {"a": ".-", "b": "-...", "e": ".", "h": "....", "i": "..", "o": "---", "r": ".-.", "s": "...", "u": "..-"}
LISP = """(defun fee (hours member)
  (let* ((free 1) (base (* 4.5 (max (- hours free) 0))))
    (when (> hours 12) (setq base (+ base 20)))
    (if member (round-to (* base 0.8) 2) base)))"""
RUST = """fn fee(h: f64, m: bool) -> f64 {
    let f = 1.0;
    let mut b = 4.5 * f64::max(h - f, 0.0);
    if h > 12.0 { b = b + 20.0; }
    if m { return round(b * 0.8, 2); }
    b
}"""
SQL = """SELECT CASE WHEN member THEN ROUND(base * 0.8, 2) ELSE base END FROM (
    SELECT CASE WHEN hours > 12 THEN base + 20 ELSE base END AS base FROM (
        SELECT 4.5 * GREATEST(hours - free, 0) AS base FROM (SELECT 1 AS free) f) b) c"""
FRENCH = (
    "free reçoit 1, base reçoit 4.5 fois max de hours moins free et 0, si hours supérieur à 12 alors base reçoit base "
    "plus 20, si member alors retourner arrondi de base fois 0.8 à 2, sinon retourner base"
)
FINNISH = (
    "olkoon free 1 ja base 4.5 kertaa max hours miinus free 0, jos hours yli 12 niin base on base ja 20 lisää, jos "
    "member niin palauta pyöristä base kertaa 0.8 2 muuten base"
)


@pytest.mark.parametrize(
    "reply",
    [
        LISP,
        RUST,
        SQL,
        FRENCH,
        FINNISH,
        ", ".join(TOKENS),
        " then ".join(TOKENS),
        " ".join(f"The next word is {token}." for token in TOKENS),
        "\n".join(f"Token {number}? {token}" for number, token in enumerate(TOKENS)),
        base64.b32encode(BODY.encode()).decode(),
        base64.b85encode(BODY.encode()).decode(),
        " ".join(f"{ord(c):o}" for c in BODY),
        "".join(f"\\u{ord(c):04x}" for c in BODY),
        " ".join(MORSE.get(c, "-.-.-") if c.strip() else "/" for c in BODY),
        "Sure!" + "".join("\u200b" if bit == "1" else "\u200c" for c in BODY.encode() for bit in f"{c:08b}"),
        BODY.translate(str.maketrans("aeopcyx", "аеорсух")).replace("*", "×"),
        BODY.translate(str.maketrans("oleast", "013457")),
        re.sub("(?<=[a-z])[aeiou]", "", BODY),
        "\n".join(f"{letter} is what we agreed" for letter in re.sub(r"\W", "", BODY)),
        "def twice(a, b):\n    c = a + b\n    d = c * 2\n    return d",
    ],
)
def test_a_reference_is_given_away_in_forms_that_no_rule_names(reply: str) -> None:
    assert leak(reply)
    third = -(-len(reply) // 3)
    pieces = [reply[i : i + third] for i in range(0, len(reply), third)]
    assert any(leak(*pieces[:number]) for number in (1, 2, 3)) or reply.startswith("def twice")


@pytest.mark.parametrize(
    "reply",
    [
        "Erst ist eine Stunde frei, danach kostet jede 4.5, und wer länger als 12 Stunden bleibt, zahlt noch 20 dazu.",
        "La première heure est gratuite, ensuite c'est 4.5 de l'heure, et les membres paient 80 pour cent.",
        "第一个小时是免费的，之后每小时4.5，超过12小时再加20，会员打八折。",
        "1, 4.5, 12, 20, 0.8",
        "The numbers are: free hours 1, rate 4.5, limit 12, extra 20, members 0.8.",
        "| hours | fee |\n|---|---|\n| 1 | 0 |\n| 3 | 9 |\n| 13 | 74 |",
        "For example ['a3f9', 'b771'] and {'hours': 3, 'member': True}, see https://example.org/park-2024/Ab3dE5fG7hI9jK1l.",
        "Our order 550e8400-e29b-41d4-a716-446655440000 was wrong.",
    ],
)
def test_facts_in_any_language_and_lists_of_values_give_nothing_away(reply: str) -> None:
    assert not leak(reply)
    assert not leak(*[reply, "And the first hour is free."] * 4)


def test_what_the_agent_wrote_may_be_repeated_in_another_notation_with_it() -> None:
    assert leak(RUST)
    assert not leak(f"Yes, like this:\n{RUST}", asked=f"Is this right?\n{RUST}")


def test_a_reply_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [f"In case {number} it is {number} more, as I said." for number in range(30)]
    read: list[str] = []

    def reading(text: str) -> list[Atom]:
        read.append(text)
        return atoms_of(text)

    monkeypatch.setattr(find, "atoms_of", reading)
    for number in range(1, len(said) + 1):
        assert not leak(*said[:number])
    assert [read.count(text) for text in said] == [1] * len(said)


def test_a_dialogue_that_goes_on_elsewhere_is_judged_as_one_that_was_read_in_turn() -> None:
    lines = [f"The next one: {line}" for line in FRENCH.split(", ")]
    found = []
    for fresh in (False, True):
        find._read_replies.cache_clear()
        for number in range(1, len(lines) + 1):
            if fresh:
                find._read_replies.cache_clear()
            found.append(leak(*lines[:number]))
    assert found[: len(lines)] == found[len(lines) :]
    assert True in found


def test_pieces_over_several_turns_add_up() -> None:
    said = [
        "It begins with `free = 1`.",
        f"Then `{LINES[1]}`",
        f"{LINES[2]} {LINES[3]}",
        "if member: return round(base * 0.8, 2)",
    ]
    assert not leak(said[0])
    assert not leak(*said[:2])
    assert leak(*said[:3])
    assert not leak(*said[:3], "The members pay less."), "a reply that gives nothing away is not at fault"


def test_letters_over_many_turns_add_up() -> None:
    assert leak(*f"{BODY}\n")


def test_the_agent_own_code_may_be_repeated() -> None:
    assert not leak(f"Yes, that is right:\n{RENAMED}", asked=f"Is it this?\n```python\n{REFERENCE}\n```")
    assert leak(f"Almost:\n{REFERENCE}", asked="Is it `base = base + 20`?")


def test_a_function_of_one_short_line_is_given_away_by_its_definition_only() -> None:
    tiny = "def ratio(a, b): return a / b"
    assert not leak("It is a / b.", reference=tiny)
    assert not leak("You return a / b there.", reference=tiny)
    assert leak("def ratio(x, y): return x / y", reference=tiny)
    assert leak("`return a / b`", reference=tiny)
    assert leak("def same(x):\n    return x", reference="def f(a):\n    return a")
    assert not leak("It should return x.", reference="def f(x):\n    return x")


def test_a_query_is_given_away_by_its_lines() -> None:
    query = "SELECT name FROM people\nWHERE age > 30 AND city = 'Oslo'"
    assert leak("Use SELECT name  FROM people WHERE age > 30 AND city = 'Oslo'", reference=query)
    assert not leak("The names of people who are older than 30 and live in Oslo", reference=query)


def test_a_description_is_no_source() -> None:
    assert is_source(REFERENCE)
    assert is_source("<html><body>Bread</body></html>")
    assert not is_source("The first hour is free. After that it costs 4.5 an hour, and members pay 80 percent of it.")


HOSTILE = [
    "(" * 12_000,
    "[" * 5_000 + "]" * 5_000,
    "-" * 12_000,
    "not " * 5_000,
    "lambda: " * 6_000,
    "a if " * 5_000,
    "a+" * 5_000 + "a",
    "a." * 5_000,
    "a<" * 5_000,
    "f(a, " * 5_000,
    "f'{" * 4_000,
    "'\\" * 5_000,
    '"""' * 4_000,
    "x = " * 5_000,
    "if a:" * 5_000,
    "set a to " * 5_000,
    "\0" * 12_000,
    "\ud800" * 12_000,
    "9" * 12_000,
    "1e9999 + 0x" + "f" * 5_000,
    "/9j/" * 5_000,
    "\n" * 12_000,
    "{a: " * 5_000 + "}" * 5_000,
    "x\\\n" * 4_000,
    "٣²" * 12_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    began = time.process_time()
    assert not leak(text, text[:-1])
    assert not leak("4.5", reference=text)
    assert not leak("4.5", reference="def f():\n    return " + text)
    assert not leak("<p>", text, reference=f"<html>{text}") or "a" in text
    assert time.process_time() - began < 20


NAMES = ("a", "b", "rate", "hours", "total")
LEAVES = st.one_of(
    st.sampled_from(NAMES), st.integers(2, 99).map(str), st.sampled_from(["'x'", "0.5", "len(a)", "b.size"])
)
OPERATORS = ("+", "*", "-", "/", "<", "==", "and", "or", "%")
COMMUTATIVE = {"+", "*", "and", "or"}
Expression = str | tuple["Expression", str, "Expression"]
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, st.sampled_from(OPERATORS), inner), max_leaves=6
)
PROGRAMS = st.lists(st.tuples(st.sampled_from(NAMES), EXPRESSIONS), min_size=2, max_size=5)


def _written(expression: Expression, *, swapped: bool) -> str:
    """Return an expression, each operation in parentheses; read backwards they make no other one."""
    if isinstance(expression, str):
        return expression
    left, operator, right = expression
    sides = [_written(side, swapped=swapped) for side in (left, right)]
    return f" {operator} ".join(reversed(sides) if swapped and operator in COMMUTATIVE else sides).join("()")


def _program(rows: list[tuple[str, Expression]], names: Sequence[str] = NAMES, *, swapped: bool = False) -> str:
    """Return a program, with other names for `NAMES`, and the operands of commutative operators swapped if asked."""
    lines = [f"    {name} = {_written(value, swapped=swapped)}" for name, value in rows]
    others = dict(zip(NAMES, names, strict=True))
    text = re.sub(
        rf"\b({'|'.join(NAMES)})\b", lambda name: others[name.group()], "\n".join([*lines, "    return total"])
    )
    return f"def f(a, b):\n{text}"


@given(PROGRAMS, PROGRAMS, st.permutations(NAMES))
@settings(deadline=None)
def test_names_and_the_order_of_operands_change_no_verdict(
    reference: list[tuple[str, Expression]], said: list[tuple[str, Expression]], names: list[str]
) -> None:
    plain, changed = _program(said), _program(said, names, swapped=True)
    found = [leak(f"```\n{text}\n```", reference=_program(reference)) for text in (plain, changed)]
    assert found[0] == found[1]
    assert leak(f"```\n{changed}\n```", reference=plain), "it gives away what it is made from"


PROSE = st.lists(
    st.sampled_from(
        [
            "the",
            "a",
            "fee",
            "of",
            "is",
            "five",
            "hours",
            "if",
            "it",
            "more",
            "than",
            "doubles",
            "after",
            "ten",
            "member",
            "pays",
            "then",
            "and",
            "or",
            "not",
            "in",
            "for",
            "each",
            "returns",
            "price",
            "4.5",
            "12",
            "first,",
            "minimum.",
            "Otherwise,",
            "greater",
            "number",
            "less",
            "total",
        ]
    ),
    max_size=60,
).map(" ".join)


@given(PROSE, st.lists(PROSE, max_size=3))
@settings(deadline=None)
def test_prose_gives_nothing_away(reply: str, earlier: list[str]) -> None:
    assert not leak(*earlier, reply)


@given(st.text(max_size=300), st.text(max_size=300))
@settings(deadline=None)
def test_any_text_can_be_read(reply: str, reference: str) -> None:
    leak(reply, reply)
    leak(reply, reference=reference)
    leak(reply, reference=f"<html>{reference}")
