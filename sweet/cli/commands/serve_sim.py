"""`sweet serve-sim`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweet.cli import console
from sweet.cli.command import command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.rollouts.serve_sim import ServeConfig


@command(
    "serve-sim",
    "sweet.rollouts.serve_sim:ServeConfig",
    examples=(
        ("sweet serve-sim", "the scripted human, on port 8000"),
        ("sweet serve-sim --engine embedded --model DIR --port 0", "any model in one process, on a free port"),
        (
            "sweet serve-sim --engine vllm --model MODEL --tp 4 -- --max-model-len 16384",
            "with vllm, if it is installed",
        ),
        ("sweet serve-sim --engine server --model MODEL --sim-url URL", "the human of a served model, by sessions"),
        ("sweet serve-sim --task html --engine vllm --model MODEL", "a vision model, which sees both pages"),
    ),
    text="Prints its address on stdout as soon as it answers, and serves until it is interrupted. An agent can be "
    "served in the same way.",
)
def serve_sim(call: Call[ServeConfig]) -> None:
    from sweet.rollouts.metrics import ServeMetrics
    from sweet.rollouts.serve_sim import run_serve

    def ready(url: str) -> None:
        if call.common.json:
            metrics = ServeMetrics(url=url).as_json()
            console.print_json({"stage": "serve-sim", "run": None, "metrics": metrics, "artifacts": []})
        else:
            console.show_address(url)
        call.reporter.say(f"Serving until Ctrl-C; sweet rollout --sim MODEL --sim-url {url} plays with it.")

    run_serve(call.config, call.reporter, ready)
