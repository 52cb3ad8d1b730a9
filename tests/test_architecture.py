"""The structure of the package that import-linter's contracts in pyproject.toml cannot state."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_import_cycle_between_files() -> None:
    """Imports for types and imports inside functions count, and so do the `__init__.py` of packages."""
    graph = grimp.build_graph("sweet", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which lists the modules of a cycle
