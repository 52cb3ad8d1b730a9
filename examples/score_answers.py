"""Score answers of your own: a program answers each task without a dialogue, and the hidden tests score the answers.

python examples/score_answers.py [RUN]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import sweet


def answer(number: int, task: sweet.Task) -> str:
    """Return the code to deliver. Put your own system here; this one copies every second reference."""
    return task.ground_truth if number % 2 == 0 else "def wrong():\n    return None"


def main(path: Path) -> None:
    tasks = sweet.load_tasks("micro", split="test")[:10]
    rows = [
        {
            "task": task.model_dump(mode="json"),
            "dialogue_history": [{"role": "user", "content": task.problem_description}],
            "answer": answer(number, task),
        }
        for number, task in enumerate(tasks)
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "answers.json")
        file.write_text(json.dumps(rows), encoding="utf-8")
        run = sweet.import_trajectories(file, path)
    result = sweet.evaluate(run)
    for trajectory in sweet.read_trajectories(run):
        print(f"{trajectory.task_id}  reward {trajectory.reward:.2f}")
    print("success rate:", result.as_json()["metrics"]["success_rate"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/answers"))
