"""`--quiet` for libraries: their warnings are not shown, in this process and in those that it starts.

Libraries warn in three ways: by `logging`, by `warnings`, and by the C++ code of torch, which reads a variable when it
is imported. Errors of this program do not go through any of these.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLES = {
    "PYTHONWARNINGS": "ignore",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
}
"""What started processes, and libraries that are not imported yet, read. Variables that are set keep their values."""


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the warnings of libraries in this context."""
    added = {name: value for name, value in _VARIABLES.items() if name not in os.environ}
    disabled = logging.root.manager.disable
    os.environ.update(added)
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for name in added:
            os.environ.pop(name, None)
