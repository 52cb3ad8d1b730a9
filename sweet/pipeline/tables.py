"""The base of the tables of a recipe that are options of no stage: [servers.…], [slurm]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from sweet.suggestions import did_you_mean


class Table(BaseModel):
    """A table; its keys may have dashes, as those of all tables."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _name_fields(cls, values: Any) -> Any:
        """Return the values by field.

        Raises:
            ValueError: a key that the table does not have; suggests the most similar one.
        """
        if not isinstance(values, Mapping):
            return values
        named = {str(key).replace("-", "_"): value for key, value in values.items()}
        known = [name.replace("_", "-") for name in cls.model_fields]
        for key in named.keys() - cls.model_fields.keys():
            word = key.replace("_", "-")
            raise ValueError(f"there is no {word}.{did_you_mean(word, known)} Known here: {', '.join(known)}")
        return named
