"""What docs/commands.md says beyond what the commands declare: environment variables, and the figures of --json.

Tests hold it against the program: every variable that the source reads is named, and the figures of real calls are
those listed here. A rate has its interval beside it, as NAME_ci_low and NAME_ci_high.
"""

from __future__ import annotations

from pkgutil import resolve_name

from sweet.stages.record import documentation

VARIABLES: dict[str, str] = {
    "OPENAI_API_KEY": "key of every server that wants one",
    "SWEET_AGENT_API_KEY": "key of the agent's server, before `OPENAI_API_KEY`",
    "SWEET_SIM_API_KEY": "the same of the simulated human's",
    "SWEET_JUDGE_API_KEY": "the same of the judge's",
    "SWEET_DATA": "folder of what `sweet data` fetches; else the user's data folder",
    "SWEET_CACHE": "folder of what can be computed again: expected values of tests, reference log-probabilities; "
    "else the user's cache folder",
    "SWEET_SANDBOX_IMAGE": "image of the sandbox tier `docker`",
    "SWEET_FIREFOX": "the Firefox that renders pages",
    "SWEET_BROWSER_DRIVER": "`playwright` or `direct`: who drives it",
    "SWEET_OPENRLHF_PYTHON": "Python of the environment that OpenRLHF is installed in",
    "HF_ENDPOINT": "address of the model hub",
    "HF_HUB_OFFLINE": "1 asks the hub for nothing",
    "HF_TOKEN": "the hub's token, for models and datasets behind terms",
    "NO_COLOR": "no colours",
}
"""Environment variables that are no option of a command."""

_TRAINING = {
    "steps": "optimizer steps done",
    "loss": "mean loss of the last epoch",
    "accuracy": "share of the last epoch's pairs whose chosen side came out higher",
    "margin": "mean difference of the two sides in the last epoch, as the loss sees it, beta included",
    "tokens": "tokens trained on, as if every sequence were computed by itself",
    "tokens_computed": "tokens that were computed, shared beginnings once",
    "sharing": "tokens over tokens_computed",
    "padding": "share of the computed positions that held no token",
    "tokens_per_second": "tokens a second",
    "tokens_computed_per_second": "computed tokens a second",
    "mfu": "model FLOPs utilisation of tokens, on GPUs whose peak is known",
    "mfu_computed": "the same of tokens_computed: what the device did",
    "seconds": "of training",
    "heldout_accuracy": "share of the held-out preferences in order, by the weights that were kept",
    "best_step": "step of these weights",
    "advantage_chosen": "mean advantage of the first, second, … turn of the chosen sides, last epoch, nats a token",
    "advantage_rejected": "the same of the rejected sides",
    "reference_cached": "sequences whose reference log-probabilities were found",
    "reference_computed": "those that were computed",
    "lr": "highest learning rate",
    "nll": "weight of the likelihood term",
    "epochs": "passes over the data",
    "batch": "examples of a step",
    "parameters": "of the model",
    "trained_parameters": "those that were trained, fewer with --lora",
    "examples": "pairs or dialogues learned from",
    "heldout": "preferences held out",
    "dropped_turns": "early turns left out because the sequence was too long",
    "left_out": "examples left out because even their last turn was too long",
}

_RECORDS = {
    "rollout": "sweet.rollouts.metrics:RolloutMetrics",
    "label": "sweet.preferences.metrics:LabelMetrics",
    "pair": "sweet.preferences.metrics:PairMetrics",
    "eval": "sweet.scoring.metrics:EvalMetrics",
    "rank": "sweet.ranking.metrics:RankMetrics",
    "compare": "sweet.scoring.results.metrics:ComparisonMetrics",
    "data colbench": "sweet.datasets.metrics:ColBenchMetrics",
    "data websight": "sweet.datasets.metrics:WebSightMetrics",
    "data assets": "sweet.datasets.metrics:AssetsMetrics",
    "data micro-agent": "sweet.datasets.metrics:MicroAgentMetrics",
    "data import": "sweet.datasets.metrics:ImportMetrics",
    "data export": "sweet.datasets.metrics:ExportMetrics",
    "data new-task": "sweet.datasets.metrics:NewTaskMetrics",
}
"""Commands, and the record of their metrics, whose docstrings say what each figure is."""

METRICS: dict[str, dict[str, str]] = {
    **{command: dict(documentation(resolve_name(record))) for command, record in _RECORDS.items()},
    "demo": {
        "tasks": "unseen tasks played before and after",
        "success_before": "share of them solved by the packaged agent, with interval",
        "success_after": "the same by the trained one, that of the last round, with interval",
        "tests_before": "share of the hidden tests passed by the packaged agent, with interval",
        "tests_after": "the same by the trained one, with interval",
        "rounds": "one entry a round: success and tests, as after it, with intervals",
        "sandbox": "jail that ran the code",
        "seconds": "of the whole",
        "steps": "seconds of each step",
        "seeds": "with --study: the seeds, and of the following figures the mean over them with a t-interval",
        "test_tasks": "with --study: unseen tasks of each evaluation",
        "methods": "with --study: success, tests_passed and greedy_success of each method, the seconds that making its "
        "actor took, its settings, and sweet less it: paired by task, and over seeds",
        "best_of": "with --study: success of the best of n dialogues, by critic, no_info, random and oracle",
        "offline": "with --study: success by the number of offline dialogues",
        "credit": "with --study: mean advantage by kind of turn, and how often replies are in the true order",
        "settings": "with --study: its sizes",
        "versions": "with --study: what it ran on",
        "results": "with --study: the file of all these figures",
        "failed": "with --study: parts that failed, with the reason",
    },
    "serve-sim": {"url": "the server's address, told as soon as it answers"},
    "train-critic": _TRAINING,
    "train-actor": _TRAINING,
    "view": {
        "trajectories": "dialogues of the artifact",
        "chosen": "those that the filters leave",
        "shown": "those in the object",
        "html": "the page that was written, with --html",
        "export": "the rows that were written, with --export",
        "pictures_left_out": "screenshots that did not fit into it",
    },
    "report": {
        "success_rate": "of the newest scores, with interval (code)",
        "cosine": "the same (html)",
    },
    "status": {
        "attempts": "attempts in the manifest",
        "artifacts": "artifacts in it",
        "stale": "artifacts made from something that has changed since",
    },
}
"""Command, and its figures in the order in which they are told."""
