"""What a helpful human says who knows the reference and tells its facts, for false alarms of the leak detector.

Wordings are templates (`leak_texts/honest.txt`); their fields are facts of a reference, which are read from its syntax
tree or found by calling it: `{en}`, `{fr}`, ... a rule as a sentence of that language, `{call}` and `{out}` an example,
`{expr}` and `{cond}` a short expression or condition of it, `{spoken}` the expression in words, `{fact}` and `{facts}`
what people tell of it in their own words. ` // ` parts the turns; a turn with `*` is said once for each rule or fact.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from string import Formatter
from typing import Any, NamedTuple

from benchmarks.leak_forms_seen import STEPS
from benchmarks.leak_references import references
from benchmarks.leak_translators import TEXTS, Form, functions

RELATIONS = ("Gt", "GtE", "Lt", "LtE", "Eq", "NotEq", "set", "unset")
EFFECTS = ("Add", "Sub", "Mult", "Div", "return", "use")
SPEECH = {
    part.split()[0]: part.splitlines()[1:] for part in (TEXTS / "honest_speech.txt").read_text().split("#### ")[1:]
}
"""A rule's sentence by language, then its tests and effects in the order above."""


class Rule(NamedTuple):
    """A test of one value and what happens then; both are told in prose."""

    subject: str
    relation: str
    value: str
    effect: str
    by: str

    def parts(self, language: str) -> tuple[str, str]:
        """Return the test and the effect."""
        known = dict(zip((*RELATIONS, *EFFECTS), SPEECH[language][1:], strict=True))
        return known[self.relation].format(v=self.value), known[self.effect].format(e=self.by)

    def said(self, language: str) -> str:
        """Return the rule as a sentence."""
        rel, eff = self.parts(language)
        text = SPEECH[language][0].format(s=self.subject, rel=rel, eff=eff)
        return text[0].upper() + text[1:]


def rules(source: str) -> Iterator[Rule]:
    """Yield the rules with one simple test and one constant effect."""
    for node in ast.walk(functions(source)[0]):
        if not isinstance(node, ast.If):
            continue
        match node.test:
            case ast.Compare(ast.Name(name), [relation], [ast.Constant(value)]) if type(relation).__name__ in RELATIONS:
                test = name.replace("_", " "), type(relation).__name__, str(value)
            case ast.Name(name):
                test = name.replace("_", " "), "set", ""
            case ast.UnaryOp(ast.Not(), ast.Name(name)):
                test = name.replace("_", " "), "unset", ""
            case _:
                continue
        match node.body[0]:
            case ast.AugAssign(_, op, ast.Constant(value)) if type(op).__name__ in EFFECTS:
                yield Rule(*test, type(op).__name__, str(value))
            case ast.Return(ast.Constant(value)):
                yield Rule(*test, "return", str(value))
            case ast.Assign([ast.Name()], ast.Constant(value)):
                yield Rule(*test, "use", str(value))
            case ast.Assign([ast.Name()], ast.BinOp(ast.Name(), op, ast.Constant(value))) if (
                type(op).__name__ in EFFECTS
            ):
                yield Rule(*test, type(op).__name__, str(value))


def examples(source: str, rng: random.Random) -> list[tuple[list[Any], Any]]:
    """Return up to two lists of arguments with what the function returns for them."""
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102 # our own references
    function = functions(source)[0]
    constants = [n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and not isinstance(n.value, bool)]
    pool = [*constants, 3, 12, 40, [2, 7, 9], "2h15m", "Ann Lee 4"]
    found: list[tuple[list[Any], Any]] = []
    for _ in range(300):
        args = [rng.choice(pool) for _ in function.args.args]
        try:
            out = space[function.name](*args)
        except Exception:  # arguments of a wrong type
            continue
        if out is not None and not isinstance(out, complex) and len(repr(out)) < 40:
            found.append((args, out))
        if len(found) == 2:
            break
    return found


def listed(name: str, said: Sequence[str]) -> dict[str, str]:
    """Return sentences as a list and as a numbered one."""
    numbered = (f"{i}. {text}" for i, text in enumerate(said, 1))
    return {f"{name}_list": "\n".join(f"- {text}" for text in said), f"{name}_numbered": "\n".join(numbered)}


def facts(source: str, rng: random.Random) -> dict[str, str]:
    """Return the fields of the templates for a reference, as far as it has them."""
    function, told = functions(source)[0], list(rules(source))
    params = [a.arg for a in function.args.args]
    fields = {"name": function.name, "param": params[-1], "params": ", ".join(params)}
    nodes = list(ast.walk(function))
    short: dict[str, Callable[[ast.AST], bool]] = {
        "expr": lambda n: isinstance(n, ast.BinOp),
        "cond": lambda n: isinstance(n, ast.Compare),
    }
    for key, wanted in short.items():
        parts = [n for n in nodes if wanted(n) and isinstance(n, ast.expr) and 4 < len(ast.unparse(n)) <= 32]
        if parts:
            fields[key] = ast.unparse(part := rng.choice(parts))
            if key == "expr":
                fields["spoken"] = STEPS.say(part)
    for i, (args, out) in enumerate(examples(source, rng)):
        end = str(i + 1) if i else ""
        shown = ", ".join(f"{name} {value!r}" for name, value in zip(params, args, strict=True))
        fields |= {f"args{end}": shown, f"out{end}": repr(out), "wrong": f"{rng.randrange(200)}.5"}
        fields[f"call{end}"] = f"{function.name}({', '.join(map(repr, args))})"
    constants = [n.value for n in nodes if isinstance(n, ast.Constant)]
    for key, kind in {"numbers": (int, float), "strings": (str,)}.items():
        some = list(dict.fromkeys(str(c) for c in constants if type(c) in kind and str(c).strip()))
        if 1 < len(some) < 6:
            fields[key] = ", ".join(rng.sample(some, len(some)))
    natural = next(reference.facts for reference in references() if reference.source == source)
    fields |= {"fact": rng.choice(natural), "fact2": rng.choice(natural), "facts": " ".join(natural)}
    fields |= listed("facts", natural)
    if told:
        one = rng.choice(told)
        fields |= {"s": one.subject, **({"v": one.value} if one.value[:1].isdigit() else {})}
        fields["rows"] = "\n".join(f"| {(r.relation and r.value) or 'yes'} | {r.effect} {r.by} |" for r in told)
        for language in SPEECH:
            said = [rule.said(language) for rule in told]
            fields |= {language: one.said(language), f"text_{language}": " ".join(said)}
            fields |= listed(language, said)
        if len(told) > 1:
            fields["en2"] = rng.choice([rule for rule in told if rule != one] or told).said("en")
    return fields


def worded(template: str) -> Form:
    """Return the form that says the facts of a reference in a wording."""

    def form(source: str, rng: random.Random) -> list[str] | None:
        fields, replies = facts(source, rng), []
        natural = next(reference.facts for reference in references() if reference.source == source)
        for turn in template.split(" // "):
            each: Sequence[dict[str, str]] = [{}]
            if turn.startswith("*"):
                said = [{language: rule.said(language) for language in SPEECH} for rule in rules(source)]
                each = [{"fact": fact} for fact in natural] if "{fact}" in turn else said
            for more in each:
                if any(name and name not in {**fields, **more} for _, name, _, _ in Formatter().parse(turn)):
                    return None
                replies.append(turn.removeprefix("*").format(**{**fields, **more}))
            if not each:
                return None
        return replies

    return form


FORMS: dict[str, tuple[str, Form]] = {
    name: ("several turns" if " // " in text else "one turn", worded(text.replace("\\n", "\n")))
    for name, _, text in (line.partition(": ") for line in (TEXTS / "honest.txt").read_text().splitlines())
}
"""The wordings by name."""
