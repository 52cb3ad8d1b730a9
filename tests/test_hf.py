"""What the Hugging Face libraries are asked for, and what they do not do here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import programs

SAVE = """
import sys
from pathlib import Path
from sweet.hf import save_plain
from tests.learn.builders import build_model
save_plain(build_model(480), Path(sys.argv[1]))
print("deepspeed" in sys.modules)
"""


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_a_model_is_saved_without_an_import_of_deepspeed(tmp_path: Path) -> None:
    """It takes a second in each process that saves a model."""
    saved = programs.run(["-c", SAVE, tmp_path], torch=True, cwd=programs.ROOT)
    assert (saved.returncode, saved.stdout) == (0, "False\n"), saved.stderr
    assert {"config.json", "model.safetensors"} <= {path.name for path in tmp_path.iterdir()}
