"""The run that tests of pages share with those of the viewer."""

from tests.view.conftest import run

__all__ = ["run"]
