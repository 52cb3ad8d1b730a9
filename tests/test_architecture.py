"""The structure of the package that import-linter's contracts in pyproject.toml cannot state."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import sweet

SERIALIZERS = {
    "JsonValue",
    "PlainSerializer",
    "SerializeAsAny",
    "WrapSerializer",
    "computed_field",
    "field_serializer",
    "model_serializer",
}
"""Names of pydantic with which it calls a function of Python while it writes a value."""


def test_no_import_cycle_between_files() -> None:
    """Imports for types and imports inside functions count, and so do the `__init__.py` of packages."""
    graph = grimp.build_graph("sweet", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which lists the modules of a cycle


def test_no_serializer_of_pydantic_calls_a_function() -> None:
    """It would turn an interrupt that arrives there into a warning. `sweet.json_value` has a type for JSON values."""
    root = Path(sweet.__file__).parent
    found = {
        f"{path.relative_to(root)}: {name.name}"
        for path in root.rglob("*.py")
        if "pydantic" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "pydantic"
        for name in node.names
        if name.name in SERIALIZERS
    }
    assert found == set()
