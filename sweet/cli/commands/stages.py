"""The stages of the pipeline, in its order."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from sweet.cli import console
from sweet.cli.command import NewRun, OptionalRun, command
from sweet.cli.spec import Call
from sweet.errors import UsageError
from sweet.units import format_value, percent, plain_bounds

if TYPE_CHECKING:
    from sweet.online.config import TrainOnlineConfig
    from sweet.rollouts.config import RolloutConfig
    from sweet.rollouts.gateway.config import GatewayConfig
    from sweet.rollouts.play.config import PlayConfig, PlayMetrics
    from sweet.rollouts.play.interface import Interface
    from sweet.runs.run import Run
    from sweet.stages.base import Reporter, StageResult


@command(
    "rollout",
    examples=(
        ("sweet rollout --num-tasks 20 --samples 2", "the packaged agent and the scripted human, no server"),
        (
            "sweet rollout RUN --tasks colbench --agent-url http://localhost:8000/v1 --agent MODEL "
            "--sim MODEL --sim-url http://localhost:8001/v1",
            "ColBench with two servers",
        ),
        ("sweet rollout RUN --persona plain --persona terse", "two humans, over whom the tasks are spread"),
        ("sweet rollout RUN --agent RUN/actor/actor-1", "dialogues of a trained actor"),
        ("sweet rollout RUN --split test --best-of 16", "the critic chooses among 16 replies at each turn"),
        ("sweet rollout --agent DIR -- --max-model-len 16384", "a model that vllm serves during the rollout"),
    ),
    text="Each finished dialogue is one line of the run's rollouts. Called again with the same options on the same "
    "run, it plays the missing dialogues. A model without an address runs on this machine: by vllm, if it is "
    "installed and supports the machine (it is started and stopped automatically), else in this process.",
)
def rollout(call: Call[RolloutConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import run_stage, slug

    task = call.config.task
    run_stage(call, run, new_run=(task, f"{slug(task)}-{slug(call.config.agent)}"), show=_show_played)


def _show_played(result: StageResult) -> None:
    from sweet.view.comparison import humans

    console.show_result(result, hidden={"humans"})
    console.show(*humans(result.as_json()["metrics"]))


@command(
    "play",
    examples=(
        ("sweet play --num-tasks 10 --name ada", "answer the packaged agent's questions"),
        ("sweet play RUN --as agent --name ada", "ask the scripted human"),
        ("sweet play RUN --agent MODEL --agent-url http://localhost:8000/v1", "against a served agent"),
        ("sweet play RUN --resume", "go on where you or a crash left off"),
        ("sweet play RUN --name ada --serve-at 8080", "in a browser on this machine"),
    ),
    text="You see what your side sees: as the human the request, the reference and, for pages, both pictures; as "
    "the agent the request alone. ? lists the keys. The dialogue under way is saved after every turn: the same "
    "command goes on with it. What you finish are ordinary rollouts, which sweet eval scores, sweet compare "
    "compares and sweet view shows.",
    long_work=False,
)
def play(call: Call[PlayConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import open_run, run_stage, slug
    from sweet.rollouts.play.stage import run_play
    from sweet.view.app.browser import parse_address, serve

    config = call.config
    named = (config.task, f"{slug(config.task)}-play-{slug(config.name)}")
    if config.serve_at is None or call.common.dry_run or console.in_browser():
        if console.in_browser():
            sys.stdout = sys.stderr  # the driver writes packets to stdout

        def work(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult[PlayMetrics]:
            return run_play(run, config, reporter, _interface(run))

        run_stage(call, run, work=work, new_run=named)
        return
    open_run(call, run, named)

    def ready(url: str) -> None:
        console.show_address(url)
        call.reporter.say("Serving until Ctrl-C; whoever has the address can play, and read the tasks' references.")

    host, port = parse_address(config.serve_at)
    serve(host, port, call.words(), ready)


def _interface(run: Run) -> Interface:
    has_terminal = sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if not has_terminal and not console.in_browser():
        raise UsageError("There is no terminal to play on.", where="stdin and stderr", fix="--serve-at 8080")
    from sweet.view.app.play import TextualInterface

    return TextualInterface(run)


@command(
    "gateway",
    examples=(
        ("sweet gateway runs/mine --model DIR --port 8000", "a model in this process, for any program"),
        ("sweet gateway runs/mine --model MODEL --agent-url http://localhost:8001/v1", "in front of a server"),
        ("sweet gateway runs/mine --resume", "go on with its sessions after a stop or a kill"),
    ),
    text="Prints its address and key on stderr as soon as it answers, and serves until it is interrupted. A program "
    "names its session by the key or the address, and posts its reward and end there (docs/gateway.md).",
    long_work=False,
)
def gateway(call: Call[GatewayConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import run_stage, slug

    task = call.config.task
    run_stage(call, run, new_run=(task, f"{slug(task)}-gateway-{slug(call.config.model)}"), show=_show_played)


@command(
    "eval",
    examples=(
        ("sweet eval", "score the newest run"),
        ("sweet eval RUN --compare BASELINE", "also compare it with another run on the same tasks"),
        ("sweet eval RUN --compare RUN:scores-1", "compare after with before training, in one run"),
        ("sweet eval RUN --similarity clip", "pages by CLIP ViT-B/32, as in the paper"),
        ("sweet eval RUN --scorer upstream", "as the published code scores, to compare with its results"),
        ("sweet eval RUN --scorer both", "both scorers"),
        ("sweet eval RUN --best-of-by critic", "how well the critic selects the best dialogue of a task"),
    ),
    text="Code runs in a sandbox, pages in headless browsers (sweet doctor shows those of this machine).",
)
@command(
    "label",
    examples=(("sweet label RUN", "pair the dialogues that sweet eval scored"),),
    text="The critic is trained on these preferences, with access to the reference solution.",
)
@command(
    "train-critic",
    examples=(
        ("sweet train-critic RUN", "start from the model that played the dialogues"),
        ("sweet train-critic RUN --dry-run", "show the planned computation and its memory"),
        ("sweet train-critic RUN --resume", "resume after an interruption"),
        ("sweet train-critic RUN --engine deepspeed", "on all GPUs of this machine"),
    ),
)
@command(
    "rank",
    examples=(
        ("sweet rank RUN --candidates 16 --fraction 0.1", "16 replies at a tenth of the turns"),
        (
            "sweet rank RUN --judge llm --judge-model MODEL --judge-url URL",
            "a language model instead of the critic",
        ),
        (
            "sweet rank RUN --replies candidates-1 --judge oracle",
            "the same replies, ranked by the tasks' own knowledge",
        ),
    ),
)
@command(
    "pair",
    examples=(("sweet pair RUN --pairs 4", "four pairs for each turn"),),
)
@command(
    "train-actor",
    examples=(
        ("sweet train-actor RUN", "step-level DPO on the pairs of sweet pair"),
        ("sweet train-actor RUN --algorithm rft", "the baseline: fine-tuning on the solved dialogues"),
        ("sweet train-actor RUN --algorithm sft --model DIR", "a warm-up on all dialogues, such as imported ones"),
    ),
    text="The trained actor is a Hugging Face model directory: sweet rollout --agent DIR plays it.",
)
def continue_run(call: Call[Any], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    shows = {"eval": _show_scores, "rank": _show_ranking}
    run_stage(call, run, show=shows.get(call.spec.name, console.show_result))


def _show_scores(result: StageResult) -> None:
    from sweet.cli.commands.compare import show_comparison
    from sweet.scoring.results.trained_on import in_words
    from sweet.view.comparison import MEASURES, humans, samples

    metrics = result.as_json()["metrics"]
    console.show(in_words(metrics["trained_on_tasks"], metrics["tasks"]))
    console.show_result(result, hidden={"compare", "best_of", "trained_on_tasks", "humans", *MEASURES})
    console.show(*humans(metrics), *samples(metrics))
    if "compare" in metrics:
        show_comparison(metrics["compare"])


def _show_ranking(result: StageResult) -> None:
    metrics = result.as_json()["metrics"]
    console.show_result(result, hidden={"credit", "agreement_by_kind"})
    if "credit" in metrics:
        rows = [
            (
                kind,
                format_value(figures["turns"]),
                format_value(figures["replies"]),
                f"{figures['mean_advantage']:+.3f} {plain_bounds(figures['ci_low'], figures['ci_high'])}".rstrip(),
            )
            for kind, figures in metrics["credit"].items()
        ]
        console.heading("Mean advantage of each kind of reply that the tasks distinguish")
        console.show_rows(["reply", "turns", "replies", "mean advantage"], rows, right=["turns", "replies"])
    if "agreement_by_kind" in metrics:
        couples = [
            (name.replace(">", " over "), format_value(figures["couples"]), percent(figures["share"]))
            for name, figures in metrics["agreement_by_kind"].items()
        ]
        console.heading("Share of couples in which the judge prefers the better reply")
        console.show_rows(["kinds", "couples", "share"], couples, right=["couples", "share"])


@command(
    "train-online",
    examples=(
        ("sweet train-online RUN --algorithm grpo --steps 50", "GRPO on the rewards of a task's dialogues"),
        ("sweet train-online RUN --generated-tokens 200000", "end when so many tokens have been written"),
        ("sweet train-online RUN --stop-on-collapse", "end when it collapses, and keep the best actor"),
    ),
    text="Each step plays some tasks with the newest weights, scores the dialogues, learns from them by a credit "
    "rule, and gives the new weights to the running sampler. Dialogues, scores and a checkpoint are written "
    "meanwhile, so that nothing is lost by a crash: --resume goes on.",
)
def train_online(call: Call[TrainOnlineConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import run_stage

    new_run = (call.config.task, f"online-{call.config.algorithm}")
    run_stage(call, run, new_run=new_run, show=partial(console.show_result, hidden=("curve",)))
