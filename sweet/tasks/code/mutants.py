"""Mutants of a source: copies that differ in one place, by which tests are tested. Standard library only: it runs in
the reader's process (sweet.tasks.code.reader), which executes none of them.

An operator is exchanged, a constant changed, a condition negated, or a statement deleted. What no test sees stays:
annotations, docstrings, texts of exceptions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

MOST = 40
"""Mutants of a source at most; of more places those are taken that are spread evenly over it."""

_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.Mod, ast.FloorDiv), (ast.And, ast.Or)),
)
_EXCHANGED = dict(_PAIRS) | {second: first for first, second in _PAIRS}
_DELETED = (ast.AugAssign, ast.Expr, ast.If, ast.Return, ast.Continue)
_KEPT = {"annotation", "returns", "decorator_list", "format_spec", "exc"}


def mutants(source: str, most: int = MOST) -> list[tuple[str, str]]:
    """Return mutants of a source in the order of their places: of each the line that differs, and the whole source.

    Raises:
        SyntaxError: the source does not parse.
    """
    tree = ast.parse(source)
    lines = ast.unparse(tree).splitlines()
    changes = [(*place, new) for place in _places(tree) for new in _changes(*place[:2])]
    chosen = [changes[number * len(changes) // most] for number in range(most)] if len(changes) > most else changes
    mutated = []
    for _, child, holder, key, new in chosen:
        holder[key] = new
        text = ast.unparse(ast.fix_missing_locations(tree))
        holder[key] = child
        pairs = zip(lines, text.splitlines(), strict=False)
        changed = [f"`{old.strip()}` became `{new.strip()}`" for old, new in pairs if old != new]
        mutated += [(changed[0], text)] if changed else []
    return mutated


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, Any, Any]]:
    """Yield each node below one after its parent, with what holds it, a list or the fields, and its key in it."""
    for field, value in ast.iter_fields(node):
        several = isinstance(value, list)
        for key, child in enumerate(value) if several else [(field, value)]:
            if isinstance(child, ast.AST) and field not in _KEPT:
                yield node, child, value if several else vars(node), key
                yield from _places(child)


def _changes(parent: ast.AST, child: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a child."""
    value = child.value if isinstance(child, ast.Constant) and not isinstance(parent, ast.Expr) else None
    if type(child) in _EXCHANGED:
        yield _EXCHANGED[type(child)]()
    elif isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float | str):
        yield ast.Constant(value + "x" if isinstance(value, str) else value + 1)
    elif isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not | ast.USub):
        yield child.operand
    elif isinstance(child, _DELETED) and not isinstance(getattr(child, "value", None), ast.Constant):
        yield ast.Pass()
    is_condition = isinstance(parent, ast.IfExp | ast.If) and child is parent.test
    if is_condition and isinstance(child, ast.BoolOp | ast.Name | ast.Call):
        yield ast.UnaryOp(ast.Not(), child)
