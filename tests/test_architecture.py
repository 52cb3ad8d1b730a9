"""The structure of the package that import-linter's contracts in pyproject.toml cannot state."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sweet
from sweet.installation import NOT_USED

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
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    found = {
        f"{path.relative_to(root)}: {name.name}"
        for path, text in texts.items()
        if any(name in text for name in SERIALIZERS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "pydantic"
        for name in node.names
        if name.name in SERIALIZERS
    }
    assert found == set()


ROOT = Path(__file__).parents[1]
OWN = {"benchmarks", "convert_model", "docs", "sweet", "sweet_capitals", "sweet_digits", "sweet_discounted"}
OWN |= {"sweet_openenv", "sweet_sql", "tests"}
"""Modules of the repository."""
IN_JAIL = {"child", "determinism"}
"""Files that stand beside the one that imports them in a jail."""

APART = {"tau2", "openenv"}
"""What is installed apart from the program: a user's checkout, and a library that excludes others that are declared."""


@pytest.mark.parametrize(("folder", "not_used"), [("sweet", NOT_USED), ("tests", set())])
def test_every_imported_package_is_declared(folder: str, not_used: set[str]) -> None:
    """Also one that another package brings along: that one may stop to. Imports inside functions count."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    words = [*project["dependencies"], *(word for name in extras.keys() - not_used for word in extras[name])]
    declared = {canonicalize_name(Requirement(word).name) for word in words}
    installed = packages_distributions()
    named = {module for module, names in installed.items() if declared & {*map(canonicalize_name, names)}}
    known = {*sys.stdlib_module_names, *OWN, *IN_JAIL, *APART, *named}
    found: dict[str, Path] = {}
    for path in (ROOT / folder).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if known.issuperset(re.findall(r"^[ \t]*(?:import|from)[ \t]+(\w+)", text, re.MULTILINE)):
            continue  # to parse all takes long
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0]: path for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found[node.module.partition(".")[0]] = path
    by_name = {module: {*map(canonicalize_name, installed.get(module, [module]))} for module in found.keys() - known}
    assert {module: found[module] for module, names in by_name.items() if not names & declared} == {}
