"""Hostile answers to code tasks, by class and size, and the pieces of hostile texts.

Each class writes an answer of about so many characters that aims at one part of the path from a text to its score:
extraction, the parser, the compiler, the child, its report, the comparison. None of them is right: the answer to the
reference's tests (`TESTS`) earns nothing. `TOKENS` are the pieces from which tests/fuzz builds texts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

TESTS = {"test1": "f(0)", "test2": "f(1)", "test3": "f(2)"}
MANY_TESTS = {f"test{number}": f"f({number})" for number in range(100)}
REFERENCE = "def f(x=0):\n    return f'right {x}'\n"
HONEST = "```python\ndef f(x=0):\n    total = sum(range(2_000_000))\n    return f'right {x}' if total else ''\n```"
"""An answer that is right and computes for some tens of milliseconds in each call."""
MOST_NESTED = 19
"""Blocks that CPython compiles inside each other; it refuses one more."""
MOST_REPORTED = 200_000
"""Characters of a value that the sandbox reports; references return no larger one."""


@dataclass(frozen=True)
class Nasty:
    """One class of hostile answers.

    Attributes:
        name: unique.
        write: returns an answer of about so many characters, or one that makes a value of about that size.
        reference: returns the reference of the task that it answers.
        tests: the tests of that task.
    """

    name: str
    write: Callable[[int], str]
    reference: Callable[[int], str] = lambda _size: REFERENCE
    tests: dict[str, str] = field(default_factory=lambda: TESTS)


def repeated(piece: str, size: int, before: str = "", after: str = "") -> str:
    """Return `piece` repeated between `before` and `after`, about `size` characters in all."""
    return before + piece * max(1, (size - len(before) - len(after)) // len(piece)) + after


def nested(before: str, core: str, after: str, size: int, *, start: str = "", end: str = "") -> str:
    """Return `core` inside so many pairs of `before` and `after` that the text has about `size` characters."""
    depth = max(1, (size - len(start) - len(core) - len(end)) // (len(before) + len(after)))
    return f"{start}{before * depth}{core}{after * depth}{end}"


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def blocks(opening: str, closing: str, size: int, depth: int = MOST_NESTED) -> str:
    """Return functions with `depth` nested blocks each, about `size` characters in all."""
    one = "".join(f"{' ' * level}{opening}\n" for level in range(1, depth + 1)) + " " * (depth + 1) + "x = 0\n"
    if closing:
        one += "".join(f"{' ' * level}{closing}\n{' ' * (level + 1)}x = 1\n" for level in range(depth, 0, -1))
    return functions(one, size)


def functions(body: str, size: int) -> str:
    """Return `f` and other functions with this body, about `size` characters in all."""
    others = (f"def g{number}(x=0):\n{body}" for number in range(1, size // (len(body) + 12)))
    return "".join([f"def f(x=0):\n{body}", *others])


def finally_inside(size: int, depth: int = MOST_NESTED) -> str:
    """Return functions with `try … finally` nested in the `finally`: the compiler doubles the code at every level."""
    one = "".join(f"{' ' * (level + 1)}try: x = 0\n{' ' * (level + 1)}finally:\n" for level in range(depth))
    one += f"{' ' * (depth + 1)}x = 1\n"
    return functions(one, size)


def chain(size: int) -> str:
    """Return fenced blocks of which each needs a definition of the one before it."""
    count = max(2, size // 48)
    texts = [fenced(f"def h{number}():\n    return h{number - 1}()") for number in range(1, count)]
    return "\n".join([fenced("h0 = 0"), *texts, fenced(f"def f(x=0):\n    return h{count - 1}()")])


def long_helper(size: int) -> str:
    """Return a fenced block that needs a sum of many terms from another block."""
    return fenced(repeated("+x", size - 60, "def h(x):\n    return x")) + "\n" + fenced("def f(x=0):\n    return h(x)")


def returned(expression: str) -> Callable[[int], str]:
    """Return the writer of an answer that returns a value; `N` in the expression is the size."""
    return lambda size: fenced(f"def f(x=0):\n    N = {size}\n    return {expression}")


def recorded(piece: str) -> Callable[[int], str]:
    """Return the writer of an answer that reports a list of pieces for each of many tests, past the encoder."""
    return lambda size: fenced(_RECORDED.format(count=max(1, min(size, MOST_REPORTED) // len(piece)), piece=piece))


_RECORDED = """import os, sys
def f(x=0):
    frame = sys._getframe()
    while 'nonce' not in frame.f_locals:
        frame = frame.f_back
    for index in range(100):
        text = '[' + {piece!r} * {count} + str(index) + ']'
        data = f"{{frame.f_locals['nonce']}} {{index}} value {{len(text)}}\\n{{text}}".encode()
        while data:
            data = data[os.write(frame.f_locals['report'], data):]
    os._exit(0)"""


def left(leave: str, read: str) -> Callable[[int], str]:
    """Return the writer of an answer that is right if an earlier one has left something where it can read it."""
    return lambda size: fenced(
        f"import fcntl, os, resource, sys\nN = {size}\ndef f(x=0):\n    if x == 0:\n        sys.found = {read}\n"
        f"    try:\n        if x == 2: {leave}\n    except (OSError, ValueError): pass\n"
        "    return f'right {x}' if sys.found else 0"
    )


def reported(expression: str) -> Callable[[int], str]:
    """Return the writer of a reference that returns a value, of at most the size that is reported."""
    return lambda size: f"def f(x=0):\n    N = {min(size, MOST_REPORTED)}\n    return {expression}\n"


def entries(expression: str) -> Callable[[int], str]:
    """Return the writer of an answer that returns a value of a size that is reported."""
    write = reported(expression)
    return lambda size: fenced(write(size))


def deep(wrap: str) -> Callable[[int], str]:
    """Return the writer of an answer that returns a value that it has put into `wrap` again and again."""
    return lambda size: fenced(f"def f(x=0):\n    v = x\n    for _ in range({size}):\n        v = {wrap}\n    return v")


def within(wrap: str, leaf: str, depth: int = 40) -> Callable[[int], str]:
    """Return the writer of a source that returns `leaf` inside `wrap`, as deep as a value may be."""
    return lambda size: (
        f"def f(x=0):\n    v = {leaf}\n    for _ in range({min(depth, size)}):\n        v = {wrap}\n    return v\n"
    )


def within_answer(wrap: str, leaf: str, depth: int = 40) -> Callable[[int], str]:
    write = within(wrap, leaf, depth)
    return lambda size: fenced(write(size))


def _program(before: str, core: str, after: str, start: str = "f = ", end: str = "") -> Callable[[int], str]:
    return lambda size: fenced(nested(before, core, after, size - 14, start=start, end=end))


def _text(piece: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda size: repeated(piece, size, before, after)


def _in_fence(piece: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda size: fenced(repeated(piece, size - 14, before, after))


NASTY: tuple[Nasty, ...] = (
    # The parser and the compiler.
    Nasty("lambdas", _program("lambda:", "0", "")),
    Nasty("finally-inside-finally", lambda size: fenced(finally_inside(size))),
    Nasty("nested-try", lambda size: fenced(blocks("try:", "finally:", size))),
    Nasty("nested-with", lambda size: fenced(blocks("with x:", "", size))),
    Nasty("nested-for", lambda size: fenced(blocks("for x in x:", "else:", size))),
    Nasty("parentheses", _program("(", "0", ")")),
    Nasty("brackets", _program("[", "0", "]")),
    Nasty("tuples", _program("(", "0", ",)")),
    Nasty("dictionaries", _program("{0:", "0", "}")),
    Nasty("open-parentheses", _program("(", "0", "")),
    Nasty("calls", _program("f(", "0", ")", start="def f(x=0): pass\n")),
    Nasty("called-again", _in_fence("()", "def f(x=0): pass\nf", "")),
    Nasty("attributes", _in_fence(".a", "f = a", "")),
    Nasty("subscripts", _in_fence("[0]", "f = a", "")),
    Nasty("unary", _program("-", "0", "")),
    Nasty("not", _program("not ", "0", "")),
    Nasty("sum", _in_fence("+x", "def f(x=0):\n    return x")),
    Nasty("powers", _in_fence("**x", "def f(x=0):\n    return x")),
    Nasty("conditions", _program("0 if x else ", "0", "")),
    Nasty("else-if", _in_fence(" elif x: 0\n", "def f(x=0):\n if x: 0\n")),
    Nasty("comprehensions", _program("[", "0", " for x in x]")),
    Nasty("f-strings", _program("f'{", "0", "}'")),
    Nasty("format-specs", _program("{x:", "0", "}", start="f = lambda x=0: f'", end="'")),
    Nasty("decorators", _in_fence("@a\n", "", "def f(x=0): pass")),
    Nasty("helper-of-many-terms", long_helper),
    Nasty("assignments", _in_fence("a=", "f=", "0")),
    Nasty("names", lambda size: fenced("def f(x=0): pass\n" + "\n".join(f"a{n}={n}" for n in range(size // 12)))),
    Nasty("star-arguments", _in_fence("*x,", "def f(x=0):\n    return g(", ")")),
    Nasty("folded-constants", _in_fence("*4096", "def f(x=0):\n    return 'a'")),
    Nasty("long-integer", _in_fence("9", "f = ")),
    Nasty("long-hexadecimal", _in_fence("f", "f = lambda x=0: 0x")),
    Nasty("long-name", _in_fence("a", "f = ")),
    Nasty("compatibility-letters", _in_fence("\ufdfa", "f = ")),
    Nasty("combining-marks", _in_fence("\u0327\u0301", "f = a")),
    Nasty("long-string", _in_fence("a", "def f(x=0): return '", "'")),
    Nasty("continued-lines", _in_fence("\\\n", "f = ", "0")),
    Nasty("semicolons", _in_fence("0;", "def f(x=0): ")),
    # Extraction.
    Nasty("bare-decorators", _text("@a\n", "", "def f(x=0):")),
    Nasty("bare-decorators-and-prose", _text("@a\n", "", "def f(x=0):\n    return (\nis what I mean")),
    Nasty("bare-assignments", _text("a =\n", "", "def f(x=0):\n    return (")),
    Nasty("bare-imports", _text("import a b\n", "", "def f(x=0): pass\nand so on")),
    Nasty("definitions", _text("def f\n")),
    Nasty("broken-definitions", _text("def f(x): return (\n")),
    Nasty("prose-lines", _text("the value is,\n", "def f(x=0): return 1\n")),
    Nasty("newlines", _text("\n")),
    Nasty("newlines-and-text", _text("\n", "", "x")),
    Nasty("blanks", _text(" ", "", "x")),
    Nasty("blank-lines", _text("\n \t", "", "x")),
    Nasty("carriage-returns", _text("\r", "", "def f(x=0): pass")),
    Nasty("fences", _text("```\n")),
    Nasty("open-fences", _text("```python\n")),
    Nasty("alternating-fences", _text("```\n~~~\n")),
    Nasty("quoted-fences", _text("> > ```\n")),
    Nasty("backticks", _text("`")),
    Nasty("tildes-and-blanks", _text(" \t> ~~~~")),
    Nasty("inline-fences", _text("```a```")),
    Nasty("chain-of-blocks", chain),
    Nasty("many-programs", _text("```\ndef f(x=0): return 1\n```\n")),
    Nasty("open-string", _text("'''\n", "def f(x=0):\n    return 0\n")),
    Nasty("markers-with-blanks", _text("I WANT TO ANSWER" + 100 * " ")),
    Nasty("answer-marker-and-blanks", _text(" ", "I WANT TO ANSWER", "x")),
    Nasty("emphasis-and-blanks", _text("** \t", "**I WANT TO ANSWER", "x")),
    Nasty("outputs", _text("OUTPUT:\n")),
    Nasty("quoted-outputs", _text(" >#", "I WANT TO ANSWER:\n", "x")),
    # Characters.
    Nasty("null", _in_fence("\0", "def f(x=0): return 0 #")),
    Nasty("surrogates", _in_fence("\ud800", "def f(x=0): return '", "'")),
    Nasty("bidi-and-c1", _in_fence("\u202e\x9b31m\u2066", "def f(x=0): return '", "'")),
    Nasty("form-feeds", _in_fence("\x0c", "", "def f(x=0): pass")),
    Nasty("line-separators", _in_fence("\u2028\x85\x1c", "def f(x=0): return 0 #")),
    # The child and its report.
    Nasty("catastrophic-pattern", _in_fence("a", "import re\ndef f(x=0):\n    return re.match('(a*)*$', '", "b')")),
    Nasty("unending", lambda _size: fenced("def f(x=0):\n    while True: pass")),
    Nasty("printed", returned("print('a' * 1000 * N)")),
    Nasty("raised", lambda size: fenced(f"def f(x=0):\n    raise ValueError('\\x9b' * {size})")),
    Nasty("recursion", lambda _size: fenced("def f(x=0):\n    return f(x)")),
    Nasty("returned-integer", returned("1 << 8 * N")),
    Nasty("returned-text", returned("'\\ud800' * N")),
    Nasty("returned-list", returned("[[]] * N")),
    Nasty("returned-float", returned("[1e308 * 10, -0.0, 5e-324] * (N // 20)")),
    Nasty("returned-iterator", returned("iter(int, 1)")),
    Nasty("deep-list", deep("[v]")),
    Nasty("deep-dictionary", deep("{0: v}")),
    Nasty("shared-lists", deep("[v, v]")),
    # The comparison: one entry is wrong, or one leaf.
    Nasty(
        "reversed-dictionary",
        entries("{float(i + (i == 1) / 2): x for i in reversed(range(N // 16))}"),
        reported("{i: x for i in range(N // 16)}"),
    ),
    Nasty(
        "reversed-set",
        entries("{float(i + (i == 1) / 2) for i in reversed(range(N // 8))}"),
        reported("{i for i in range(N // 8)}"),
    ),
    Nasty(
        "set-of-close-floats",
        entries("{1 + i * 9e-10 + (i == 0) * 5 + 1e-13 for i in range(N // 24)}"),
        reported("{1 + i * 9e-10 for i in range(N // 24)}"),
    ),
    Nasty(
        "dictionary-of-lists",
        entries("{i: [1.0] * 8 + [2 if i == 1 else 1] for i in reversed(range(N // 40))}"),
        reported("{i: [1] * 9 for i in range(N // 40)}"),
    ),
    Nasty("nested-dictionaries", within_answer("{0: v}", "x + 1"), within("{0: v}", "x")),
    Nasty("nested-sets", within_answer("frozenset([v])", "x + 1"), within("frozenset([v])", "x")),
    Nasty("nested-pairs", within_answer("frozenset([v, 7.0])", "x + .5"), within("frozenset([v, 7])", "x")),
    Nasty(
        "integer-for-decimal",
        returned("1 << 8 * N"),
        lambda _size: "from decimal import Decimal\ndef f(x=0):\n    return Decimal(x)\n",
    ),
    Nasty("integer-for-float", returned("[1 << 8 * N]"), lambda _size: "def f(x=0):\n    return [x / 2]\n"),
    Nasty(
        "exponent-for-fraction",
        lambda size: fenced(f"from decimal import Decimal\ndef f(x=0):\n    return Decimal('1e{size}')"),
        lambda _size: "from fractions import Fraction\ndef f(x=0):\n    return Fraction(x + 1, 3)\n",
    ),
    Nasty(
        "exponent-for-integer",
        lambda size: fenced(f"from decimal import Decimal\ndef f(x=0):\n    return Decimal('1e{10 * size}')"),
        lambda _size: "def f(x=0):\n    return (x + 1) ** 50\n",
    ),
    # many values
    *(
        Nasty(f"records-of-{name}", recorded(piece), tests=MANY_TESTS)
        for name, piece in {
            "dictionaries": "{},",
            "lists": "[[[[[[[[]]]]]]]],",
            "objects": '{"a":{}},',
            "sets": '{"set":[]},',
            "texts": '"ab",',
            "integers": "999,",
            "long-integers": f'{{"int":"{"f" * 900}"}},',
        }.items()
    ),
    # what an answer leaves for the next
    *(
        Nasty(f"left-{name}", left(leave, read))
        for name, (leave, read) in {
            "flags": ("fcntl.fcntl(1, 4, fcntl.fcntl(1, 3) | os.O_APPEND)", "fcntl.fcntl(1, 3) & os.O_APPEND"),
            "non-blocking": ("os.set_blocking(0, False)", "not os.get_blocking(0)"),
            "closed-stream": ("os.close(2)", "False if os.fstat(2) else True"),
            "mask": ("os.umask(0o123)", "os.umask(0o22) == 0o123"),
            "limit": (
                "resource.setrlimit(resource.RLIMIT_NOFILE, (33, 64))",
                "resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 33",
            ),
            "folder": ("os.chdir('/usr')", "os.getcwd() == '/usr'"),
        }.items()
    ),
)

_WORDS = r"""
def f(x=0): return 0|def f(x):|class f:|f = |lambda: |try:|finally:|if x:|elif x:|else:|with x:|for x in x:|@a|import a
from a import b|raise |return |yield |(|)|[|]|{|}|,|:|;|=|-|+x|**|.a|()|[0]|not |'|"|'''|f'{|}'|\|#|0x|9|1e9|a|```
```python|~~~|````|> |__|*|_|I WANT TO ANSWER|I WANT TO ANSWER:|i want to answer|ANSWER|OUTPUT|OUTPUT:|**OUTPUT:**|#
sudo|exit(|Sorry, |<p class=|{a: b}|é|ﷺ
"""
_CONTROLS = " \n\t\r\x0b\x0c\x1c\x85\u2028\0\x9b\u202e\ud800\udc00"
TOKENS: tuple[str, ...] = (*re.split(r"[|\n]", _WORDS.strip("\n")), *_CONTROLS)


def drawn(seed: int, size: int) -> str:
    """Return a text of about `size` characters of tokens, each repeated a number of times drawn by the seed."""
    draw, parts, length = random.Random(seed), list[str](), 0
    while length < size:
        part = draw.choice(TOKENS) * int(1.5 ** draw.randint(0, 20))
        parts.append(part[: size - length])
        length += len(parts[-1])
    return "".join(parts)


DRAWN = tuple(Nasty(f"drawn-{seed}", lambda size, seed=seed: drawn(seed, size)) for seed in range(8))  # type: ignore[misc]
"""Answers of many tokens; that one of them is right is as unlikely as it looks."""
