"""The run that tests of pages share with those of the viewer."""

from tests.view.conftest import made_run, run

__all__ = ["made_run", "run"]
