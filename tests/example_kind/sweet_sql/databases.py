"""Generate small databases from a schema, on which queries are tested.

A schema has the columns of each table, and for each column its possible values, or `key` for a running number. The same
schema and number of rows give the same database everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

KEY = "key"


class SchemaError(ValueError):
    """A schema, or the numbers of rows, are invalid."""


def databases(schema: Any, sizes: Any) -> dict[str, str]:
    """Return the script of a database for each number of rows, by name.

    Raises:
        SchemaError: the schema or the numbers are invalid.
    """
    if not isinstance(schema, dict) or not schema:
        raise SchemaError("The task has no 'schema'.")
    if not isinstance(sizes, list) or not sizes or not all(type(size) is int and 0 <= size <= 1000 for size in sizes):
        raise SchemaError("'databases' must be a list of numbers of rows, 0 to 1000.")
    return {f"{size} rows, {number}": _script(schema, size, number) for number, size in enumerate(sizes, 1)}


def _script(schema: dict[str, Any], size: int, number: int) -> str:
    chance = random.Random(number)
    return "\n".join(_table(name, columns, size, chance) for name, columns in schema.items())


def _table(name: str, columns: Any, size: int, chance: random.Random) -> str:
    if not isinstance(columns, dict) or not columns or not all(map(str.isidentifier, (name, *columns))):
        raise SchemaError(f"The table {name!r} must have columns, each with a plain name.")
    rows = [[_value(name, values, row, chance) for values in columns.values()] for row in range(1, size + 1)]
    made = f"CREATE TABLE {name} ({', '.join(columns)});"
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
    return f"{made} INSERT INTO {name} VALUES {values};" if rows else made


def _value(table: str, values: Any, row: int, chance: random.Random) -> Any:
    if values == KEY:
        return row
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise SchemaError(f"A column of {table!r} must be {KEY!r} or a list of values.")
    return chance.choice(values)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise SchemaError(f"A column holds numbers, texts and null, not {value!r}.")
