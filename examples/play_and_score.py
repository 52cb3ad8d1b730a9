"""Play dialogues between an agent and a simulated human, and score them.

python examples/play_and_score.py [RUN]

The agent is the packaged model, which runs on a CPU, and the human is scripted. For a model on a server, set `agent`
and `agent_url` (`sim` and `sim_url` for the human).
"""

from __future__ import annotations

import sys
from pathlib import Path

import sweet


def main(path: Path) -> None:
    run = sweet.Run.open_or_create(path)
    config = sweet.RolloutConfig(tasks="micro", split="test", num_tasks=3, samples=2, seed=1)
    sweet.rollout(run, config)
    result = sweet.evaluate(run)
    for trajectory in sweet.read_trajectories(run):
        print(f"\n== {trajectory.id}, reward {trajectory.reward}")
        for turn in trajectory.dialogue_history:
            print(f"{'agent' if turn.role == 'assistant' else 'human'}: {turn.content}")
    metrics = result.as_json()["metrics"]
    print(f"\n{metrics['trajectories']} dialogues, {100 * metrics['tests_passed']:.1f} % of the hidden tests passed")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/played"))
