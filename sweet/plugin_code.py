"""The code of installed packages: it is imported and called here, and its errors are reported as those of the package.

An exception that a plug-in raises becomes an error that names what raised it, the package and the line. What it returns
is compared with the type that the interface declares, so that a wrong value is reported where it comes from. Errors of
`sweet.errors` are meant for the user and pass unchanged.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from sweet.errors import SweetError, UsageError, described, first_problem
from sweet.hints import option
from sweet.plugins import Plugin, plugins
from sweet.suggestions import did_you_mean, nearest

T = TypeVar("T")


def installed_plugin(group: str, what: str, name: str, names: Sequence[str], named_by: str) -> Plugin:
    """Return the plug-in of a name; one of `sweet` itself is preferred.

    Args:
        group: of the entry points.
        what: what the plug-ins of this group are called.
        names: all names that there are.
        named_by: the option that names it, for errors.

    Raises:
        UsageError: there is none of this name, or several packages have one.
    """
    found = plugins(group).get(name, [])
    if not found:
        near = nearest(name, names)
        raise UsageError(
            f"There is no {what} called {name!r}; installed: {', '.join(names) or 'none'}." + did_you_mean(name, names),
            where=option(named_by),
            fix=option(named_by, near)
            if near
            else f"install the package that has {name!r}, or {option(named_by, tuple(names))}",
        )
    if len(found) > 1 and not found[0].ours:
        raise UsageError(
            f"Several packages have a {what} called {name!r}: {', '.join(map(str, found))}.",
            where=option(named_by),
            fix=f"pip uninstall {found[1].package}",
        )
    return found[0]


class PluginCode:
    """The code of one plug-in.

    Args:
        what: what it provides: "kind of task" or "credit rule".
    """

    def __init__(self, what: str, plugin: Plugin) -> None:
        self._name = f"{what} {plugin.name!r} ({plugin})"
        self._plugin = plugin
        self._source: Path | None = None

    def load(self, base: type[T]) -> type[T]:
        """Import the plug-in's class, which must be derived from `base` and define all of its abstract methods.

        Raises:
            UsageError: it cannot be imported, or is not such a class.
        """
        try:
            found = self._plugin.point.load()
        except (Exception, SystemExit) as error:  # a plug-in's module may raise anything
            raise self.broken(f"cannot be imported: {type(error).__name__}: {error}", error) from error
        if not (isinstance(found, type) and issubclass(found, base)):
            expected = f"{base.__module__}.{base.__qualname__}"
            raise self.broken(f"is not a class derived from {expected} but {found!r:.100}")
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise self.broken(f"lacks {', '.join(missing)}")
        with suppress(TypeError, OSError):  # a class that was typed into a notebook has no file
            file, module = Path(inspect.getfile(found)), inspect.getmodule(found)
            self._source = file.parent if module is not None and module.__package__ else file
        return found

    def broken(self, problem: str, error: BaseException | None = None) -> UsageError:
        """Return the error of a plug-in that cannot be used."""
        where = self._plugin.point.value
        if not self._plugin.registered:
            where = f"entry point {self._plugin.name} = {where}"
        place = None if error is None else self._place_of(error)
        return UsageError(
            f"The {self._name} {problem}.",
            where=where if place is None else f"{where}; {place}",
            fix=f"correct {self._plugin.package}",
        )

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Turn an exception of the plug-in's code into a SweetError."""
        try:
            yield
        except SweetError:
            raise
        except (Exception, SystemExit) as error:
            raise self.error(method, f"raised {_in_one_line(error)}", self._place_of(error)) from error

    def checked(self, method: str, value: Any, hint: Any) -> Any:
        """Return the value; SweetError if it is not of the type `hint`."""
        if problem := mismatch(value, hint):
            raise self.error(method, f"returned {problem}")
        return value

    def wrapped(self, method: str, function: Callable[..., Any], hint: Any) -> Callable[..., Any]:
        """Return the function with its exceptions and its result checked."""

        def call(*args: Any, **options: Any) -> Any:
            with self.calling(method):
                value = function(*args, **options)
            return self.checked(method, value, hint)

        return call

    def error(self, method: str, problem: str, where: str | None = None) -> SweetError:
        """Return the error of a call that failed, or returned something wrong."""
        return SweetError(
            f"{method} of the {self._name} {problem}.",
            where=where,
            fix=f"correct it in {self._plugin.package}; --debug shows the traceback",
        )

    def _place_of(self, error: BaseException) -> str | None:
        """Return the file and line that raised: the innermost frame of the plug-in's code, if that is known."""
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if not self._source or Path(frame.filename).is_relative_to(self._source)]
        return f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else None


def _in_one_line(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        place, what = first_problem(error)
        return f"ValidationError: {place} of {error.title}: {what}"
    return described(error)


@cache
def declared(interface: type, name: str) -> Any:
    """Return the type of an attribute or of a method's result. It is Any for a method that returns nothing, or Self."""
    member = inspect.getattr_static(interface, name, None)
    function = member.fget if isinstance(member, property) else member
    if inspect.isfunction(function):
        hint = get_type_hints(function).get("return", Any)
    else:
        hint = get_type_hints(interface).get(name, Any)
    return Any if hint in (NoneType, Self) else hint


def mismatch(value: Any, hint: Any, at: str = "") -> str | None:
    """Say which part of a value is not of the type `hint`; None if every part is.

    Args:
        at: the path of the value, as in "datasets.tiny.train".
    """
    base, args = get_origin(hint) or hint, get_args(hint)
    if base is Any or (base in (Union, UnionType) and value is None):
        return None
    if base in (Union, UnionType):
        of_each = [mismatch(value, one, at) for one in args if one is not NoneType]
        return None if None in of_each else of_each[0]
    if base is type:
        fits = isinstance(value, type) and issubclass(value, args[0])
    elif base is Literal:
        fits = value in args
    elif base is float:
        fits = isinstance(value, int | float) and isfinite(value)
    else:
        fits = isinstance(value, (list, tuple) if base is list else base)
    if not fits:
        found = repr(value) if isinstance(value, float) or base is Literal else type(value).__name__
        expected = re.sub(r"(\w+\.)+", "", str(hint)) if args else base.__name__
        return f"{found} instead of {expected}" + (f" in {at}" if at else "")
    path = f"{at}." if at else ""
    problems = (mismatch(part, of, f"{path}{key}") for key, part, of in _parts(value, base, args))
    return next(filter(None, problems), None)


def _parts(value: Any, base: type, args: tuple[Any, ...]) -> list[tuple[object, Any, Any]]:
    """Return the name, the value and the declared type of each part."""
    if isinstance(value, Mapping):
        return [(key, part, args[1]) for key, part in value.items()]
    if isinstance(value, list | tuple | frozenset):
        return [(number, part, args[0]) for number, part in enumerate(value)]
    if dataclasses.is_dataclass(base):
        hints = get_type_hints(base)
        return [(field.name, getattr(value, field.name), hints[field.name]) for field in dataclasses.fields(base)]
    return []
