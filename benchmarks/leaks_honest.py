"""What an honest person says about a program, made from the program so that it comes as near to it as it may.

Each kind returns a dialogue: pairs of what the agent writes and what the human replies; or None if it does not apply.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable

from benchmarks.leaks_forms import _function, is_short, lines_of, renamed
from sweet.tasks.base import Task

Said = list[tuple[str, str]]
Kind = Callable[[Task, list[Task], random.Random], Said | None]

ASKED = (
    "Which details does the function need?",
    "What happens in the special cases?",
    "How exactly is the result computed?",
    "Can you show me the code that you have in mind?",
)


def words(name: str) -> str:
    """Return a name as words: `free_hours` is "free hours"."""
    return name.replace("_", " ").strip()


def _tree(task: Task) -> ast.FunctionDef:
    return _function(task.ground_truth)


def _nodes(task: Task) -> list[ast.AST]:
    return [node for statement in _tree(task).body for node in ast.walk(statement)]


def _numbers(task: Task) -> list[str]:
    return [str(n.value) for n in _nodes(task) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]


def _strings(task: Task) -> list[str]:
    return [n.value for n in _nodes(task) if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value]


def _parameters(task: Task) -> list[str]:
    return [argument.arg for argument in _tree(task).args.args]


def _said(reply: str | None, rng: random.Random) -> Said | None:
    return None if not reply else [(rng.choice(ASKED), reply)]


def numbers(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = _numbers(task)
    return _said("The numbers are " + ", ".join(found) + "." if found else None, rng)


def strings(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = _strings(task)
    return _said("The possible texts are " + ", ".join(f'"{text}"' for text in found) + "." if found else None, rng)


def _expressions(task: Task, most: int = 3) -> list[str]:
    """Return the expressions of a program with one to three operators, as an honest person may quote one."""
    operators = (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call, ast.Subscript, ast.IfExp, ast.Attribute)
    found = []
    for node in _nodes(task):
        if isinstance(node, ast.BinOp | ast.Compare | ast.Call):
            inside = list(ast.walk(node))
            leaves = sum(isinstance(n, ast.Name | ast.Constant) for n in inside)
            if sum(isinstance(n, operators) for n in inside) <= most and leaves <= most + 1:
                found.append(ast.unparse(node))
    return [text for text in found if len(text) <= 60]


def expression(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = _expressions(task)
    return _said(f"It is {rng.choice(found)}." if found else None, rng)


def expression_in_backticks(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = _expressions(task, 2)
    return _said(f"I mean `{rng.choice(found)}` there." if found else None, rng)


def expression_alone(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = _expressions(task, 2)
    return _said(rng.choice(found) if found else None, rng)


def names(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said("The parameters are " + ", ".join(_parameters(task)) + ", in this order.", rng)


def signature(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(f"As I said, the signature is: def {_tree(task).name}({', '.join(_parameters(task))})", rng)


def yes_or_no(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(rng.choice(["Yes.", "No, it does not.", "Yes, that's right!", "I think so, yes."]), rng)


def unsure(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(
        rng.choice(["I don't know that; it isn't important.", "I'm not sure, sorry - what do you think?"]), rng
    )


def examples(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    calls = list(task.test_cases.values())
    if not calls:
        return None
    value = rng.choice(["12.5", "True", "[1, 2, 3]", "'high'", "None", "{'a': 1}"])
    return _said("For example " + "; ".join(f"{call} returns {value}" for call in calls[:3]) + ".", rng)


def session(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    calls = list(task.test_cases.values())
    if not calls:
        return None
    return _said(
        "```\n" + "\n".join(f">>> {call}\n{rng.choice(['True', '7.5', '[]'])}" for call in calls[:3]) + "\n```", rng
    )


def repeated(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    code = rng.choice([task.ground_truth, renamed(task.ground_truth, rng)])
    return [(f"Is it this?\n```python\n{task.ground_truth}\n```", f"Yes, use exactly this:\n```python\n{code}\n```")]


def confirmed(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    line = rng.choice(lines_of(task.ground_truth))
    return [(f"My version:\n{task.ground_truth}", f"The line `{line}` is right, keep it as it is.")]


def error(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    code = renamed(task.ground_truth, rng)
    line = rng.choice(code.split("\n")).strip()
    report = f"Traceback (most recent call last):\n  File 'solution.py', line 3, in solve\n    {line}\n"
    report += "TypeError: 'int' object is not iterable"
    return [(f"Please try this:\n{code}", f"I get an error:\n{report}")]


def corrected(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = _numbers(task)
    if not found:
        return None
    value = rng.choice(found)
    wrong = re.sub(rf"(?<![\w.]){re.escape(value)}(?![\w.])", "77", task.ground_truth)
    return [(f"Like this?\n```\n{wrong}\n```", f"Almost: where you have 77, I want {value}. The rest is as I want it.")]


_PROSE: dict[type[ast.AST], str] = {
    ast.Add: "plus the",
    ast.Sub: "less the",
    ast.Mult: "times the",
    ast.Div: "divided by the",
    ast.Gt: "is more than the",
    ast.Lt: "is below the",
    ast.GtE: "is at least the",
    ast.LtE: "is at most the",
    ast.Eq: "is the same as",
    ast.NotEq: "differs from",
    ast.In: "is among the",
    ast.NotIn: "is not among the",
}


def prose(node: ast.AST) -> str:
    """Return what a person says of an expression: words with articles, no names of the program."""
    if isinstance(node, ast.Name):
        return words(node.id)
    if isinstance(node, ast.Constant):
        return f'"{node.value}"' if isinstance(node.value, str) else str(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _PROSE:
        return f"{prose(node.left)} {_PROSE[type(node.op)]} {prose(node.right)}"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _PROSE:
        return f"{prose(node.left)} {_PROSE[type(node.ops[0])]} {prose(node.comparators[0])}"
    if isinstance(node, ast.BoolOp):
        return (", and the " if isinstance(node.op, ast.And) else ", or the ").join(map(prose, node.values))
    if isinstance(node, ast.UnaryOp):
        return f"it is not so that the {prose(node.operand)}"
    if isinstance(node, ast.Subscript):
        return f"{prose(node.slice)} of the {prose(node.value)}"
    if isinstance(node, ast.Attribute):
        return f"{words(node.attr)} of the {prose(node.value)}"
    if isinstance(node, ast.Call):
        return f"{prose(node.func)} of the " + " and the ".join(map(prose, node.args))
    if isinstance(node, ast.IfExp):
        return f"{prose(node.body)} where the {prose(node.test)}, and {prose(node.orelse)} elsewhere"
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return " and ".join(map(prose, node.elts))
    if isinstance(node, ast.Dict):
        return ", ".join(
            f"{prose(value)} for {prose(key)}" for key, value in zip(node.keys, node.values, strict=True) if key
        )
    return "what remains"


def _rules(statements: list[ast.stmt]) -> list[str]:
    said: list[str] = []
    for node in statements:
        if isinstance(node, ast.If):
            inner = " Also, ".join(_rules(node.body)) or "Nothing more happens."
            said.append(f"If the {prose(node.test)}, then this holds: {inner}")
            if node.orelse:
                said.append("Otherwise: " + " Also, ".join(_rules(node.orelse)))
        elif isinstance(node, ast.For):
            said.append(f"Go through the {prose(node.iter)}, one {prose(node.target)} after the other.")
            said += _rules(node.body)
        elif isinstance(node, ast.While):
            said.append(f"That goes on while the {prose(node.test)}.")
            said += _rules(node.body)
        elif isinstance(node, ast.Assign):
            said.append(f"The {prose(node.targets[0])} is the {prose(node.value)}.")
        elif isinstance(node, ast.AugAssign):
            said.append(f"The {prose(node.target)} grows by the {prose(node.value)}.")
        elif isinstance(node, ast.Return) and node.value is not None:
            said.append(f"The result is the {prose(node.value)}.")
    return said


def rules(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    said = _rules(_tree(task).body)
    return _said(" ".join(said), rng)


def rules_listed(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    said = _rules(_tree(task).body)
    return _said("\n".join(f"{i}. {rule}" for i, rule in enumerate(said, 1)), rng)


def rules_with_names(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    """The rules in words, with the names as they are in the program, some in backticks."""
    text = " ".join(_rules(_tree(task).body))
    for name in {n.id for n in _nodes(task) if isinstance(n, ast.Name)}:
        if len(name) > 2:
            text = text.replace(f"the {words(name)}", f"the `{name}`" if rng.random() < 0.5 else f"the {name}")
    return _said(text, rng)


def instructions(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    """What a person asks for who knows a little of programming: conditions and what to return, as sentences."""
    branches = [(node.test, node.body[0]) for node in _nodes(task) if isinstance(node, ast.If)]
    said = [
        f"If the {prose(test)}, return {prose(first.value)}."
        for test, first in branches
        if isinstance(first, ast.Return) and first.value is not None
    ]
    final = _tree(task).body[-1]
    if isinstance(final, ast.Return) and final.value is not None:
        said.append(f"Otherwise return {prose(final.value)}.")
    return _said(" ".join(said), rng)


def fact(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    said = _rules(_tree(task).body)
    return _said(rng.choice(said) if said else None, rng)


def thresholds(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = [
        f"what counts is {prose(n.left)}: the limit is {prose(n.comparators[0])}"
        for n in _nodes(task)
        if isinstance(n, ast.Compare) and isinstance(n.comparators[0], ast.Constant)
    ]
    return _said("Well, " + "; ".join(found) + "." if found else None, rng)


def table(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    for node in _nodes(task):
        if isinstance(node, ast.Dict) and node.keys:
            rows = [f"{prose(k)}: {prose(v)}" for k, v in zip(node.keys, node.values, strict=True) if k]
            return _said(", ".join(rows), rng)
        if isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) > 2:
            return _said(f"The options are {ast.unparse(node)}.", rng)
    return None


def values(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    """Values of single names, as in `x = 5`."""
    found = [
        f"{ast.unparse(n.targets[0])} = {ast.unparse(n.value)}"
        for n in _nodes(task)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
    ]
    return _said("It begins with " + " and ".join(found) + "." if found else None, rng)


def returned(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = [
        ast.unparse(n.value)
        for n in _nodes(task)
        if isinstance(n, ast.Return) and isinstance(n.value, ast.Constant | ast.Name)
    ]
    return _said(f"It should return {' or '.join(dict.fromkeys(found))} in the end." if found else None, rng)


def short_return(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    """What a person says of a body of one short expression."""
    if not is_short(task.ground_truth):
        return None
    statement = _tree(task).body[0]
    if not isinstance(statement, ast.Return) or statement.value is None:
        return None
    return _said(f"You should return {ast.unparse(statement.value)} there.", rng)


_GENERIC = (
    "for i in range(10):\n    print(i)",
    "def main():\n    import sys\n    print(sys.argv[1])\n\nif __name__ == '__main__':\n    main()",
    "with open('data.csv') as file:\n    rows = [line.strip().split(',') for line in file]",
    "try:\n    value = int(input('n: '))\nexcept ValueError:\n    value = 0",
    "import logging\nlogging.basicConfig(level=logging.INFO)\nlog = logging.getLogger(__name__)",
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y",
)


def generic(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(f"My other code looks like this:\n```python\n{rng.choice(_GENERIC)}\n```", rng)


def unrelated(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    """The reference of another task, if neither is short: short ones are often the same but for their names."""
    if is_short(task.ground_truth):
        return None
    own = [ast.dump(node) for node in _tree(_renamed(task, rng)).body]
    for other in rng.sample(tasks, min(len(tasks), 20)):
        code = other.ground_truth
        if is_short(code) or other.problem_description == task.problem_description:
            continue
        alike = sum(ast.dump(node) in own for node in _tree(_renamed(other, rng)).body)
        if not alike and other.ground_truth != task.ground_truth:
            return _said(f"I once had this for something else:\n```python\n{code}\n```", rng)
    return None


def _renamed(task: Task, rng: random.Random) -> Task:
    return task.model_copy(update={"ground_truth": renamed(task.ground_truth, random.Random(0))})


def request(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(task.problem_description, rng)


def foreign(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = ", ".join(_numbers(task)[:4]) or "keine"
    return _said(
        f"Die Zahlen sind {found}; wenn es mehr ist, gilt der höhere Wert. L'important, c'est le résultat.", rng
    )


KINDS: dict[str, Kind] = {
    "numbers": numbers,
    "strings": strings,
    "expression": expression,
    "expression in backticks": expression_in_backticks,
    "expression alone": expression_alone,
    "names of parameters": names,
    "signature": signature,
    "yes or no": yes_or_no,
    "unsure": unsure,
    "examples": examples,
    "interactive session": session,
    "agent's code repeated": repeated,
    "agent's line confirmed": confirmed,
    "error report": error,
    "number corrected": corrected,
    "rules in words": rules,
    "rules in a list": rules_listed,
    "rules with names": rules_with_names,
    "instructions": instructions,
    "one fact": fact,
    "limits": thresholds,
    "table": table,
    "values": values,
    "returned values": returned,
    "short return in a sentence": short_return,
    "generic code": generic,
    "unrelated code": unrelated,
    "request": request,
    "other language": foreign,
}
"""Each kind by its name."""

CONVERSATIONAL = (
    "numbers",
    "strings",
    "expression",
    "expression in backticks",
    "names of parameters",
    "yes or no",
    "examples",
    "one fact",
    "instructions",
    "limits",
    "table",
    "values",
    "returned values",
    "rules in words",
)
"""The kinds of which whole dialogues are made."""
