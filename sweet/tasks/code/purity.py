"""Decide whether a program is pure: its values follow from its text alone, and it leaves nothing behind.

Pure programs can share a process without a difference to any of their values, and calling one twice shows nothing new.
Most references are pure. Standard library only: it runs in the reader's process (sweet.tasks.code.reader).

The program is accepted by what its syntax tree may contain, and everything else is refused. It consists of functions
and assignments; it imports nothing, defines no class, uses no attribute but the listed methods of built-in types, and
no name but its own and the listed built-in functions. So it reaches nothing that outlives it. Its values are *data*:
numbers, strings, None, and lists, tuples, dictionaries, sets and ranges of data, none of which shows an address. Other
objects occur only where they end at once: functions where they are called, or passed to a built-in function that calls
them; iterators, generators and views where they are iterated over; exceptions where they are raised or caught. The
order of a set depends on an address only if it contains a NaN: programs that use sets may not compute with floats.
Whatever could hide that memory was short (`except Exception`, `finally`) is refused, because that alone depends on the
programs before.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence

_TYPES = frozenset(("bool", "bytes", "dict", "float", "frozenset", "int", "list", "range", "set", "str", "tuple"))
_ITERATING = frozenset(
    ("all", "any", "dict", "frozenset", "len", "list", "max", "min", "next", "set", "sorted", "sum", "tuple")
)
"""Functions that iterate over their first argument, and return data."""
_LAZY = frozenset(("enumerate", "filter", "iter", "map", "reversed", "zip"))
"""Functions that return an iterator."""
_FUNCTIONS = _TYPES | _ITERATING | {"abs", "bin", "chr", "divmod", "hex", "oct", "ord", "pow", "repr", "round"}
_WITH_KEY = frozenset(("max", "min", "sort", "sorted"))

_METHODS = frozenset(
    (
        *("add", "append", "bit_count", "bit_length", "capitalize", "casefold", "center", "clear", "copy"),
        *("count", "difference", "difference_update", "discard", "endswith", "extend", "find", "get", "hex"),
        *("index", "insert", "intersection", "intersection_update", "is_integer", "isalnum", "isalpha"),
        *("isascii", "isdecimal", "isdigit", "isdisjoint", "isidentifier", "islower", "isnumeric", "isprintable"),
        *("isspace", "issubset", "issuperset", "istitle", "isupper", "join", "ljust", "lower", "lstrip"),
        *("partition", "pop", "popitem", "remove", "removeprefix", "removesuffix", "replace", "reverse", "rfind"),
        *("rindex", "rjust", "rpartition", "rsplit", "rstrip", "setdefault", "sort", "split", "splitlines"),
        *("startswith", "strip", "swapcase", "symmetric_difference", "symmetric_difference_update", "title"),
        *("translate", "union", "update", "upper", "zfill"),
    )
)
"""Methods of built-in types that return data. `format` is none of them: it reads attributes; nor what loads codecs."""
_ITERATING_METHODS = frozenset(
    (
        *("difference", "difference_update", "extend", "intersection", "intersection_update", "isdisjoint"),
        *("issubset", "issuperset", "join", "symmetric_difference", "symmetric_difference_update", "union"),
        "update",
    )
)
_VIEWS = frozenset(("items", "keys", "values"))

_CAUGHT = frozenset(
    (
        *("ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError"),
        *("OverflowError", "StopIteration", "TypeError", "ValueError", "ZeroDivisionError"),
    )
)
_RAISED = _CAUGHT | {"Exception", "NotImplementedError", "RuntimeError"}


def is_pure(program: ast.Module, calls: Iterable[str]) -> bool:
    """Return whether the program with these calls is certainly pure; False where it cannot be seen."""
    try:
        expressions = [ast.parse(call, mode="eval") for call in calls]
        checker = _Checker([program, *expressions])
        checker.statements(program.body)
        checker.all_data(expression.body for expression in expressions)
    except (_Impure, SyntaxError, ValueError, RecursionError):
        return False
    return True


class _Impure(Exception):
    """Something that is not accepted was found."""


class _Checker:
    """Raises `_Impure` at the first part of a program that is not accepted."""

    def __init__(self, trees: Sequence[ast.AST]) -> None:
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self.functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        self.variables = {node.arg for node in nodes if isinstance(node, ast.arg)}
        names = [node for node in nodes if isinstance(node, ast.Name)]
        self.variables |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        own = self.functions | self.variables
        hidden = vars(builtins).keys() & own  # a function may use the built-in name that is a variable in another one
        if hidden or self.functions & self.variables or any(name.startswith("__") for name in own):
            raise _Impure
        if any(map(_makes_sets, nodes)) and any(map(_makes_floats, nodes)):
            raise _Impure

    def statements(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef(decorator_list=[]):
                self.arguments(node.args)
                self.annotation(node.returns)
                self.statements(node.body)
            case ast.Return(value=value):
                self.data(value)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.target(target)
                unpacked = all(isinstance(target, (ast.Tuple, ast.List)) for target in targets)
                self.iterated(value) if unpacked else self.data(value)
            case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=value):
                self.annotation(annotation)
                self.data(value)
            case ast.AugAssign(target=target, op=op, value=value) if not isinstance(op, ast.MatMult):
                self.target(target)
                self.iterated(value) if isinstance(op, ast.Add) else self.data(value)
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                self.target(target)
                self.iterated(iterable)
                self.statements([*body, *orelse])
            case ast.While(test=test, body=body, orelse=orelse) | ast.If(test=test, body=body, orelse=orelse):
                self.data(test)
                self.statements([*body, *orelse])
            case ast.Expr(value=value):
                self.data(value)
            case ast.Assert(test=test, msg=message):
                self.all_data((test, message))
            case ast.Raise(exc=exception, cause=None | ast.Constant(value=None)):
                self.exception(exception)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=[]):
                self.statements([*body, *orelse])
                for handler in handlers:
                    self.handler(handler)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.target(target)
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Global() | ast.Nonlocal():
                pass
            case _:
                raise _Impure

    def target(self, node: ast.expr) -> None:
        match node:
            case ast.Name():
                pass
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.target(part)
            case ast.Starred(value=value):
                self.target(value)
            case ast.Subscript(value=value, slice=index):
                self.all_data((value, index))
            case _:
                raise _Impure

    def arguments(self, node: ast.arguments) -> None:
        self.all_data((*node.defaults, *node.kw_defaults))
        for each in (*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg):
            self.annotation(each.annotation if each else None)

    def annotation(self, node: ast.expr | None) -> None:
        match node:
            case None | ast.Constant():
                pass
            case ast.Name(id=name) if name in _TYPES:
                pass
            case ast.Tuple(elts=parts):
                for part in parts:
                    self.annotation(part)
            case ast.Subscript(value=left, slice=right) | ast.BinOp(left=left, op=ast.BitOr(), right=right):
                self.annotation(left)
                self.annotation(right)
            case _:
                raise _Impure

    def exception(self, node: ast.expr | None) -> None:
        match node:
            case None:
                pass
            case ast.Name(id=name) if name in _RAISED:
                pass
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _RAISED:
                self.all_data(arguments)
            case _:
                raise _Impure

    def handler(self, node: ast.ExceptHandler) -> None:
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if node.name or not all(isinstance(kind, ast.Name) and kind.id in _CAUGHT for kind in kinds):
            raise _Impure
        self.statements(node.body)

    def all_data(self, nodes: Iterable[ast.expr | None]) -> None:
        for node in nodes:
            self.data(node)

    def data(self, node: ast.expr | None) -> None:
        """Check an expression whose value may go anywhere, if there is one."""
        match node:
            case None | ast.Constant():
                pass
            case ast.Name(id=name) if name in self.variables:
                pass
            case ast.Call():
                self.call(node, lazy=False)
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
                self.all_data((left, right))
            case ast.BoolOp(values=parts):
                self.all_data(parts)
            case ast.UnaryOp(operand=operand):
                self.data(operand)
            case ast.Compare():
                self.comparison(node)
            case ast.Subscript(value=value, slice=index):
                self.all_data((value, index))
            case ast.Slice(lower=lower, upper=upper, step=step):
                self.all_data((lower, upper, step))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.all_data((test, body, orelse))
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    self.argument(part)
            case ast.Dict(keys=keys, values=values):
                self.all_data((*keys, *values))
            case ast.ListComp(elt=element, generators=generators) | ast.SetComp(elt=element, generators=generators):
                self.comprehension(generators, element)
            case ast.DictComp(key=key, value=value, generators=generators):
                self.comprehension(generators, key, value)
            case ast.JoinedStr(values=parts):
                self.all_data(parts)
            case ast.FormattedValue(value=value, format_spec=form):
                self.all_data((value, form))
            case ast.NamedExpr(value=value):
                self.data(value)
            case _:
                raise _Impure

    def iterated(self, node: ast.expr) -> None:
        """Check an expression whose value is iterated over at once, and not kept."""
        match node:
            case ast.GeneratorExp(elt=element, generators=generators):
                self.comprehension(generators, element)
            case ast.Call():
                self.call(node, lazy=True)
            case _:
                self.data(node)

    def argument(self, node: ast.expr, iterates: bool = False) -> None:
        """Check an argument of a call, or an element of a list: data, several with a star, or one that is iterated."""
        if isinstance(node, ast.Starred):
            self.iterated(node.value)
        elif iterates:
            self.iterated(node)
        else:
            self.data(node)

    def comprehension(self, generators: Iterable[ast.comprehension], *results: ast.expr) -> None:
        for each in generators:
            if each.is_async:
                raise _Impure
            self.target(each.target)
            self.iterated(each.iter)
            self.all_data(each.ifs)
        self.all_data(results)

    def comparison(self, node: ast.Compare) -> None:
        """Check comparisons. Identity says whether two objects are one only for the constants that exist once."""
        left = node.left
        self.data(left)
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                self.iterated(right)
            else:
                self.data(right)
            if isinstance(op, (ast.Is, ast.IsNot)) and not (_exists_once(left) or _exists_once(right)):
                raise _Impure
            left = right

    def call(self, node: ast.Call, lazy: bool) -> None:
        """Check a call; only if `lazy`, it may return an iterator or a view."""
        arguments, name = list(node.args), ""
        first = every = False  # which arguments are iterated over
        match node.func:
            case ast.Name(id=name) if name in self.functions:
                pass
            case ast.Name(id="isinstance") if len(arguments) == 2:
                self.annotation(arguments.pop())
            case ast.Name(id="map" | "filter" as name) if lazy and len(arguments) > 1:
                self.function(arguments.pop(0), or_none=name == "filter")
                every = True
            case ast.Name(id=name) if name in _LAZY and lazy:
                first, every = True, name in ("reversed", "zip")
            case ast.Name(id=name) if name in _FUNCTIONS:
                first = name in _ITERATING and not (name in ("max", "min") and len(arguments) > 1)
            case ast.Attribute(value=value, attr=name) if name in _METHODS or (name in _VIEWS and lazy):
                self.data(value)
                every = name in _ITERATING_METHODS
            case _:
                raise _Impure
        for number, argument in enumerate(arguments):
            self.argument(argument, iterates=every or (first and number == 0))
        for keyword in node.keywords:
            if keyword.arg == "key" and name in _WITH_KEY and name not in self.functions:
                self.function(keyword.value, or_none=True)
            else:
                self.data(keyword.value)

    def function(self, node: ast.expr, or_none: bool) -> None:
        """Check an argument that a built-in function calls."""
        match node:
            case ast.Name(id=name) if name in self.functions or name in _FUNCTIONS:
                pass
            case ast.Lambda(args=arguments, body=body):
                self.arguments(arguments)
                self.data(body)
            case ast.Constant(value=None) if or_none:
                pass
            case _:
                raise _Impure


def _exists_once(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _makes_sets(node: ast.AST) -> bool:
    return isinstance(node, (ast.Set, ast.SetComp)) or (isinstance(node, ast.Name) and node.id in ("set", "frozenset"))


def _makes_floats(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (float, complex))
    return isinstance(node, (ast.Div, ast.Pow)) or (isinstance(node, ast.Name) and node.id in ("float", "pow"))
