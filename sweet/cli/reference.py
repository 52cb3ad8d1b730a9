"""Texts of docs/commands.md that declarations do not contain: environment variables and the metrics of --json.

Tests compare them with the program: every variable that the source reads is listed, and so is every metric of real
calls. The interval of a rate is in NAME_ci_low and NAME_ci_high.
"""

from __future__ import annotations

from pkgutil import resolve_name

from sweet.stages.record import documentation

VARIABLES: dict[str, str] = {
    "OPENAI_API_KEY": "API key for every server that requires one",
    "SWEET_AGENT_API_KEY": "API key for the agent's server; overrides `OPENAI_API_KEY`",
    "SWEET_SIM_API_KEY": "the same for the simulated human",
    "SWEET_JUDGE_API_KEY": "the same for the judge",
    "SWEET_DATA": "folder for downloads of `sweet data`; default: the user's data folder",
    "SWEET_CACHE": "folder for recomputable data: expected values of tests, reference log-probabilities; "
    "default: the user's cache folder",
    "SWEET_SANDBOX_IMAGE": "image of the sandbox tier `docker`",
    "SWEET_FIREFOX": "path of the Firefox that renders pages",
    "SWEET_BROWSER_DRIVER": "`playwright` or `direct`: how Firefox is controlled",
    "SWEET_OPENRLHF_PYTHON": "Python of the environment with OpenRLHF",
    "HF_ENDPOINT": "address of the model hub",
    "HF_HUB_OFFLINE": "1 disables requests to the hub",
    "HF_TOKEN": "token of the hub, for gated models and datasets",
    "NO_COLOR": "no colours",
}
"""Environment variables that do not belong to an option."""


_RECORDS = {
    "rollout": "sweet.rollouts.metrics:RolloutMetrics",
    "label": "sweet.preferences.metrics:LabelMetrics",
    "pair": "sweet.preferences.metrics:PairMetrics",
    "eval": "sweet.scoring.metrics:EvalMetrics",
    "rank": "sweet.ranking.metrics:RankMetrics",
    "train-critic": "sweet.training.metrics:TrainMetrics",
    "train-actor": "sweet.training.metrics:TrainMetrics",
    "compare": "sweet.scoring.results.metrics:ComparisonMetrics",
    "data colbench": "sweet.datasets.metrics:ColBenchMetrics",
    "data websight": "sweet.datasets.metrics:WebSightMetrics",
    "data assets": "sweet.datasets.metrics:AssetsMetrics",
    "data micro-agent": "sweet.datasets.metrics:MicroAgentMetrics",
    "data import": "sweet.datasets.metrics:ImportMetrics",
    "data export": "sweet.datasets.metrics:ExportMetrics",
    "data new-task": "sweet.datasets.metrics:NewTaskMetrics",
}
"""Commands, and the record of their metrics, whose docstrings describe each metric."""

METRICS: dict[str, dict[str, str]] = {
    **{command: dict(documentation(resolve_name(record))) for command, record in _RECORDS.items()},
    "demo": {
        "tasks": "unseen tasks, played before and after training",
        "success_before": "share of tasks solved by the packaged agent, with interval",
        "success_after": "share of tasks solved by the trained agent of the last round, with interval",
        "tests_before": "share of the hidden tests passed by the packaged agent, with interval",
        "tests_after": "share of the hidden tests passed by the trained agent, with interval",
        "rounds": "success and tests after each round, with intervals",
        "sandbox": "jail that ran the code",
        "seconds": "total time",
        "steps": "seconds of each step",
        "seeds": "with --study: the seeds; the metrics below are means over them with a t-interval",
        "test_tasks": "with --study: unseen tasks of each evaluation",
        "methods": "with --study: success, tests_passed and greedy_success of each method, the seconds of training, "
        "its settings, and the difference of sweet and the method: paired by task, and over seeds",
        "best_of": "with --study: success of the best of n dialogues, by critic, no_info, random and oracle",
        "offline": "with --study: success by the number of offline dialogues",
        "credit": "with --study: mean advantage by kind of turn, and how often replies are ordered correctly",
        "settings": "with --study: the sizes of the study",
        "versions": "with --study: versions of the software",
        "results": "with --study: the file with all these metrics",
        "failed": "with --study: parts that failed, with the reason",
    },
    "serve-sim": {"url": "address of the server, printed as soon as it answers"},
    "view": {
        "trajectories": "dialogues of the artifact",
        "chosen": "dialogues that match the filters",
        "shown": "dialogues in the output",
        "html": "file of the page, with --html",
        "export": "file of the exported rows, with --export",
        "pictures_left_out": "screenshots omitted because of the page's size limit",
    },
    "report": {
        "success_rate": "success rate of the newest scores, with interval (code)",
        "cosine": "mean similarity of the newest scores, with interval (html)",
    },
    "status": {
        "attempts": "attempts in the manifest",
        "artifacts": "artifacts in the manifest",
        "stale": "artifacts whose inputs have changed since",
    },
}
"""The metrics of each command, in the order of its output."""
