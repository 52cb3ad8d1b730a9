"""The sql task: a vague request for rows, a human who knows the details, and small databases that score the query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweet.sandbox.tiers import open_sandbox
from sweet.tasks import prompts
from sweet.tasks.files import Wrong, packaged_datasets
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.scores import ScoringRequest
from sweet_sql.agent import speak
from sweet_sql.databases import SchemaError, databases
from sweet_sql.scorer import SqlScorer


class Prompts(prompts.Prompts):
    package = "sweet_sql"
    speaker = "Analyst"


class SqlKind(TaskKind):
    """Queries on SQLite."""

    name = "sql"
    texts = Prompts
    datasets = packaged_datasets(Path(__file__).parent / "tasks")
    language = "sql"
    scorer_options = frozenset({"tolerance"})

    @property
    def scripted_agent(self) -> ScriptedAgent:
        return speak

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Return the task's tests: the databases on which a query is tested."""
        try:
            return {"test_cases": databases(row.get("schema"), row.get("databases", [0, 4, 7, 10]))}
        except SchemaError as error:
            raise wrong(str(error), '"schema": {"orders": {"id": "key", "status": ["paid", "open", null]}}') from error

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[SqlScorer]:
        with open_sandbox(request.sandbox, request.workers) as box:
            yield SqlScorer(box, request.tolerance)
