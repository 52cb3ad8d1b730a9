"""How the models of a stage without an address are run, from its options (see `sweet.llm.local`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sweet.llm.local import LocalServing
from sweet.runs.attempt import ActiveAttempt
from sweet.stages.base import Reporter
from sweet.stages.options import LocalModelsConfig


def plan_models(
    config: LocalModelsConfig,
    models: Iterable[tuple[str, Sequence[str]]],
    reporter: Reporter,
    *,
    others: int = 0,
    images: Mapping[str, int] | None = None,
) -> LocalServing:
    """Decide how these models are run; see `LocalServing.plan` for errors.

    Args:
        models: with their addresses.
        others: number of further models in this process that need GPU memory.
        images: maximum number of images of a prompt, for each model that receives any.
    """
    local = LocalServing(
        engine=config.local_engine,
        device=config.device,
        options=tuple(config.vllm_options),
        startup_timeout=config.startup_timeout,
        say=reporter.say,
        warn=reporter.warn,
        other_users=others,
        images=images or {},
    )
    local.plan(models)
    return local


def record_serving(local: LocalServing, attempt: ActiveAttempt) -> LocalServing:
    """Let `local` write its logs next to those of the attempt and its record into the attempt's environment.

    Returns:
        `local` itself.
    """
    local.logs = str(attempt.log_path.with_suffix(".vllm-"))
    local.record = attempt.environment
    return local
