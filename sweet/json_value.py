"""The type of what a model holds without looking into it: any JSON value.

It is pydantic's, and is validated as that, but written by its type alone. Pydantic calls a function of Python for each
value that it writes as one of its own, and turns an interrupt (Ctrl-C) that arrives in the function into a warning, so
that a command which writes its manifest would go on.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import pydantic
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class _WrittenByType:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        return {**schema, "serialization": core_schema.simple_ser_schema("any")}


JsonValue: TypeAlias = Annotated[pydantic.JsonValue, _WrittenByType()]
