"""The process that starts the commands which benchmarks/redteam.py measures for models from a stranger.

Reads a request as JSON ({"name", "steps"}) and prints one JSON line for each step: `sweet rollout` with a tiny model as
the agent, one file of which is hostile (tests/llm/test_untrusted.py). The command must end by refusing the model; with
the unchanged model it must play.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.redteam_runs import measured
from sweet.runs.run import Run
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.llm.test_untrusted import CONFIGS, TEMPLATE_BOMBS, TOKENIZERS, Edit, text

STEPS = ("rollout",)
HOSTILE: dict[str, Edit] = {
    "unchanged": lambda _folder: None,
    **{f"config-{name}": edit for name, (edit, _) in CONFIGS.items()},
    **{f"tokenizer-{name}": edit for name, (edit, _) in TOKENIZERS.items()},
    **{f"template-{name}": text("chat_template.jinja", bomb) for name, bomb in TEMPLATE_BOMBS.items()},
}


def main() -> None:
    spec: dict[str, Any] = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="redteam-") as name:
        run, model = Path(name) / "run", Path(name) / "model"
        with contextlib.redirect_stdout(sys.stderr):  # libraries print what they find on the machine
            tokenizer = build_tokenizer(TEMPLATES["chatml"])
            tokenizer.save_pretrained(model)
            build_model(len(tokenizer)).save_pretrained(model)
        HOSTILE[spec["name"]](model)
        Run.create(run, "code")
        for step in spec["steps"]:
            words = (step, "RUN", "--agent", str(model), "--num-tasks", "1", "--max-turns", "3", "--device", "cpu")
            case = measured((*words, "--max-tokens", "8"), run)
            expected = 0 if spec["name"] == "unchanged" else 2
            if case["code"] != expected:
                case["wrong"].append(f"exit code {case['code']}")
            print(json.dumps({"step": step, "grown_mib": 0.0, **case}), flush=True)


if __name__ == "__main__":
    main()
