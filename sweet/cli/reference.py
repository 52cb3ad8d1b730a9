"""Texts of docs/commands.md that declarations do not contain: environment variables and the metrics of --json.

Tests compare them with the program: every variable that the source reads is listed, and so is every metric of real
calls. The interval of a rate is in NAME_ci_low and NAME_ci_high.
"""

from __future__ import annotations

from pkgutil import resolve_name

from sweet.runs.stages import stage_named
from sweet.stages.record import documentation

VARIABLES: dict[str, str] = {
    "OPENAI_API_KEY": "API key for every server that requires one",
    "SWEET_AGENT_API_KEY": "API key for the agent's server; overrides `OPENAI_API_KEY`",
    "SWEET_SIM_API_KEY": "the same for the simulated human, and for the model of `sweet data describe`",
    "SWEET_JUDGE_API_KEY": "the same for the judge, and for `--check-model` of `sweet data describe`",
    "OPENAI_BASE_URL": "address of a model that is given none and is not a directory of this machine",
    "AZURE_OPENAI_ENDPOINT": "the same, at Azure",
    "OPENAI_ADMIN_KEY": "not used; removed from what is shown and written, as all keys are",
    "AZURE_OPENAI_API_KEY": "API key for Azure, where the role has none of its own",
    "OPENAI_API_VERSION": "version of Azure's interface, where the address has none (`?api-version=…`)",
    "SSL_CERT_FILE": "file of certificates that are trusted, as openai reads it",
    "SSL_CERT_DIR": "folder of certificates that are trusted, as openai reads it",
    "SWEET_NOTIFY": "address that every stage notifies of its end; `off` for no notification",
    "SWEET_DATA": "folder for downloads of `sweet data`; default: the user's data folder",
    "SWEET_CACHE": "folder for recomputable data: expected values of tests, reference log-probabilities, "
    "options of commands; default: the user's cache folder",
    "SWEET_SANDBOX_IMAGE": "image of the sandbox tier `docker`",
    "SWEET_FIREFOX": "path of the Firefox that renders pages",
    "SWEET_BROWSER_DRIVER": "`playwright` or `direct`: how Firefox is controlled",
    "HF_ENDPOINT": "address of the model hub",
    "HF_HUB_OFFLINE": "1 disables requests to the hub",
    "HF_TOKEN": "token of the hub, for gated models and datasets",
    "NO_COLOR": "no colours",
}
"""Environment variables that do not belong to an option."""

RECORDS = {
    "demo": ("sweet.pipeline.metrics:LoopMetrics", "sweet.study.results:StudyMetrics"),
    "train": ("sweet.pipeline.metrics:LoopMetrics",),
    "serve-sim": ("sweet.rollouts.metrics:ServeMetrics",),
    "compare": ("sweet.scoring.results.metrics:ComparisonMetrics",),
    "view": ("sweet.view.viewer:ViewMetrics",),
    "report": ("sweet.results.facts:ReportMetrics",),
    "status": ("sweet.inspection.status:StatusMetrics",),
    "control": ("sweet.inspection.controlling:ControlMetrics",),
    "data colbench": ("sweet.datasets.metrics:ColBenchMetrics",),
    "data websight": ("sweet.datasets.metrics:WebSightMetrics",),
    "data assets": ("sweet.datasets.metrics:AssetsMetrics",),
    "data micro-agent": ("sweet.datasets.metrics:MicroAgentMetrics",),
    "data check": ("sweet.datasets.metrics:CheckMetrics",),
    "data describe": ("sweet.datasets.metrics:DescribeMetrics",),
    "data import": ("sweet.datasets.metrics:ImportMetrics",),
    "data export": (
        "sweet.datasets.metrics:ExportMetrics",
        "sweet.datasets.metrics:EnvironmentExportMetrics",
        "sweet.datasets.metrics:TrlExportMetrics",
    ),
    "data push": ("sweet.publishing.config:PushMetrics",),
    "data new-task": ("sweet.datasets.metrics:NewTaskMetrics",),
}
"""Commands that are no stage of the pipeline, and the records of their metrics."""


def metrics_of(command: str) -> dict[str, str]:
    """Return the metrics of a command and what they are, from the docstrings of its records; empty without metrics."""
    stage = stage_named(command)
    records = RECORDS.get(command, ()) if stage is None else (stage.metrics_reference,)
    return {key: what for record in records for key, what in documentation(resolve_name(record))}
