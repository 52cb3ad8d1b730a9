"""What Typer keeps to itself and a program needs that must answer at once: names of the Click it bundles, and a way to
take values as they were typed. Nowhere else is it known that this is so; pyproject.toml bounds Typer for it."""

from __future__ import annotations

from typing import Any

from typer._click.core import Command, Context, Parameter, ParameterSource
from typer._click.exceptions import NoSuchOption
from typer._click.shell_completion import CompletionItem, split_arg_string
from typer._click.shell_completion import _resolve_context as resolve_context
from typer._click.shell_completion import _resolve_incomplete as resolve_incomplete
from typer._coercion import RuntimeParam
from typer.core import TyperArgument, TyperOption

__all__ = [
    "Command",
    "CompletionItem",
    "Context",
    "NoSuchOption",
    "Parameter",
    "ParameterSource",
    "TakesAsTyped",
    "resolve_context",
    "resolve_incomplete",
    "split_arg_string",
]


class _AsTyped(RuntimeParam):
    def _coerce_value(self, value: Any, param: Any, ctx: Context) -> Any:
        return value


class TakesAsTyped(Command):
    """A command that leaves the values of its arguments and options as they were typed.

    Typer would make a pydantic adapter for each, which takes longer than all the rest of a call for help.
    """

    def get_params(self, ctx: Context) -> list[Parameter]:
        params = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperArgument | TyperOption):
                described = param.type_descriptor
                param._runtime_param = _AsTyped(described.parameter_info, described.annotation)
        return params
