"""`sweet serve-sim`."""

from __future__ import annotations

import sys

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.rollouts.metrics import ServeMetrics
from sweet.rollouts.serve_sim import ServeConfig, run_serve


class ServeSim(Command[ServeConfig]):
    def work(self, call: Call[ServeConfig]) -> None:
        def ready(url: str) -> None:
            if call.common.json:
                metrics = ServeMetrics(url=url).as_json()
                console.print_json({"stage": "serve-sim", "run": None, "metrics": metrics, "artifacts": []})
                sys.stdout.flush()
            else:
                console.show_address(url)
            call.reporter.say(f"Serving until Ctrl-C; sweet rollout --sim MODEL --sim-url {url} plays with it.")

        run_serve(call.config, call.reporter, ready)


COMMANDS = (
    ServeSim(
        name="serve-sim",
        config=ServeConfig,
        summary="Start the simulated human as an OpenAI-compatible server.",
        text="Prints its address on stdout as soon as it answers, and serves until it is interrupted. An agent can be "
        "served in the same way.",
        examples=(
            ("sweet serve-sim", "the scripted human, on port 8000"),
            ("sweet serve-sim --engine embedded --model DIR --port 0", "any model in one process, on a free port"),
            (
                "sweet serve-sim --engine vllm --model MODEL --tp 4 -- --max-model-len 16384",
                "with vllm, if it is installed",
            ),
            ("sweet serve-sim --task html --engine vllm --model MODEL", "a vision model, which sees both pages"),
        ),
    ),
)
