"""What the steps of `sweet train` that are not finished need, found out before the first dialogue, and by `--dry-run`.

A need is checked by the code that the step itself uses, as far as that costs little: engines and packages, models with
their tokenizers and weights, the scorer with what it loads, servers, GPUs. Memory is compared with what the sizes of
the models take at least.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from sweet.errors import SweetError, UsageError
from sweet.gathering import run_main
from sweet.gpus import Gpu, visible_gpus
from sweet.hf import UnknownModel, not_on_the_hub
from sweet.installation import install_command
from sweet.judges.options import RUN_CRITICS
from sweet.learn.distributed import world_size
from sweet.learn.estimate import HALF, ZeroSettings, model_states
from sweet.learn.lora import check_peft
from sweet.llm.base import Role
from sweet.llm.local import weights_of
from sweet.llm.pretrained import config_path, load_tokenizer, meta_model, model_folder
from sweet.llm.scripted import SCRIPTED, has_model
from sweet.llm.tinker import service_address
from sweet.llm.vllm import MEMORY_SHARE, find_vllm
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.metrics import CheckedNeed
from sweet.pipeline.phases import phase_of
from sweet.pipeline.plan import check_phases, walk
from sweet.pipeline.recipe import Recipe
from sweet.pipeline.servers import ROLES, Servers
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.prepare import load_dialogues
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.stages.artifacts import given_model
from sweet.stages.base import Silent, StageConfig
from sweet.tasks.packaged import PACKAGED
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import SCORER_OPTIONS, ScoringRequest
from sweet.training.config import TrainConfig
from sweet.training.layout import layout_of
from sweet.training.openrlhf import check_openrlhf
from sweet.training.remote import by_service, for_service
from sweet.units import count, format_bytes

Check = Callable[[], str | None]
"""Returns what was found, None where that is not known; raises SweetError where something is missing."""

JUDGE: tuple[Role, ...] = ("judge",)
UNKNOWN = "the size of the model is not known"


def check_needs(run: Run, recipe: Recipe, servers: Servers) -> None:
    """Check what the steps need that are not finished. The servers of agent and human are asked by the first step.

    Raises:
        SweetError: something is missing; of several, all are named.
    """
    results = _checked(run, recipe, servers, asks=JUDGE)
    errors = [error for *_, error in results if isinstance(error, SweetError)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = [f"{error.what}" + (f" ({error.fix})" if error.fix else "") for error in errors]
        raise UsageError(
            "What later steps need is missing:\n" + "\n".join(f"- {line}" for line in lines),
            where=run.path,
            fix="the same command with --dry-run shows all that is needed",
        )


def needs_of(run: Run | None, recipe: Recipe) -> list[CheckedNeed]:
    """Return every need of the steps that are not finished, with what was found; `run` is None where there is none."""
    needs = []
    task, tables = recipe.train.task, recipe.servers.by_role()
    with TemporaryDirectory(prefix="sweet-") as folder:
        planned = run or Run.create(Path(folder) / "run", task)
        with Servers(planned, tables, Path(folder) / "log", Silent(), task=task) as servers:
            for what, steps, result in _checked(planned, recipe, servers, asks=ROLES):
                text, fix = (result.what, result.fix) if isinstance(result, SweetError) else (result, None)
                status = "missing" if isinstance(result, SweetError) else "unknown" if result is None else "ok"
                needs.append(CheckedNeed(need=what, steps=steps, status=status, found=text or UNKNOWN, fix=fix))
    return needs


def _checked(
    run: Run, recipe: Recipe, servers: Servers, *, asks: Collection[Role]
) -> Iterator[tuple[str, list[str], str | SweetError | None]]:
    """Yield each need, the steps that have it, and what was found or the error.

    Args:
        asks: the roles whose servers are asked.
    """
    needs: dict[str, tuple[list[str], Check]] = {}
    configs = [(title, config) for title, config, is_finished in walk(run, recipe).steps if not is_finished]
    for title, config in configs:
        for what, check in _needs(run, recipe, config, servers, asks):
            needs.setdefault(what, ([], check))[0].append(title)
    for what, (steps, check) in needs.items():
        try:
            yield what, steps, check()
        except SweetError as error:
            yield what, steps, error


def _needs(
    run: Run, recipe: Recipe, config: StageConfig, servers: Servers, asks: Collection[Role]
) -> Iterator[tuple[str, Check]]:
    """Yield what a step needs, and its check."""
    has_gpus = bool(_free(servers.gpus)) and getattr(config, "device", "auto") != "cpu"
    if isinstance(config, TrainConfig):
        model = _trained(run, config)
        yield f"model {model}", partial(_model, model)
        yield f"engine {config.engine}", partial(_engine, config)
        if has_gpus:
            yield f"memory to train {model}", partial(_training_memory, config, model)
    elif isinstance(config, TrainOnlineConfig):
        yield f"model {config.agent}", partial(_model, _trained(run, config))
    elif isinstance(config, RankConfig) and config.judge in RUN_CRITICS and has_gpus:
        critic = given_model(run, recipe.of("train-critic").get("model") or recipe.train.agent)
        yield f"memory to rank by {critic}", partial(_ranking_memory, recipe, config, critic, servers)
    elif isinstance(config, EvalConfig) and not run.manifest().of_kind("scores", "done"):
        yield f"scorer of {recipe.train.task} tasks", partial(_scorer, recipe.train.task, config)
    if isinstance(config, RolloutConfig) and config.sims == [SCRIPTED]:
        yield f"{config.split} tasks that the scripted human plays", partial(_scripted, run, config)
    if servers.tables and isinstance(config, RolloutConfig | RankConfig):
        yield "vllm", _vllm
        yield "GPUs of the servers", partial(_gpus, servers, recipe)
    for role in asks:
        urls = getattr(config, f"{role}_url", [])
        name = getattr(config, "judge_model" if role == "judge" else role, None)
        if urls and isinstance(name, str) and has_model(name) and not isinstance(config, TrainOnlineConfig):
            yield f"server of {name}", partial(_server, role, name, urls)


def _trained(run: Run, config: TrainConfig | TrainOnlineConfig) -> str:
    """Return the model that a training starts from, an actor of the run by its path."""
    return given_model(run, (config.model if isinstance(config, TrainConfig) else config.agent) or "")


def _model(name: str) -> str:
    """Find tokenizer and weights of a model that is to be trained."""
    try:
        load_tokenizer(name)
    except UnknownModel as error:
        fix = "name one whose weights are here: --set train-critic.model=MODEL --set train-actor.model=MODEL"
        raise UsageError(
            f"{error.what} An agent that is only served cannot be trained.", where=name, fix=fix
        ) from error
    if name in PACKAGED:
        return "packaged"
    if (size := weights_of(config_path(name))) is not None:
        return f"{format_bytes(size)} of weights in {model_folder(config_path(name))}"
    fix = "a complete model in Hugging Face layout"
    if Path(name).expanduser().is_dir():
        raise UsageError(f"The directory {name} has no weights (*.safetensors).", where=name, fix=fix)
    if (why := not_on_the_hub(name)) is not None:
        raise UsageError(f"The weights of {name} are not in the local cache, and {why}.", where=name, fix=fix)
    return "on the hub; its weights are downloaded when they are needed"


def _engine(config: TrainConfig) -> str:
    check_openrlhf(config)
    if by_service(for_service(config)):
        return f"trained by {service_address()}"
    if getattr(config, "lora", None) is not None:
        check_peft()
    ranks = world_size(layout_of(config))
    return "one device" if config.engine == "torch" else count(ranks, "rank")


@cache
def _parameters(model: str) -> int | None:
    """Return the number of parameters by the model's configuration; None where that cannot be read."""
    try:
        return int(meta_model(model).num_parameters())
    except SweetError:
        return None


def _free(gpus: Collection[Gpu]) -> list[int]:
    """Return the free bytes of GPUs, as far as they are known."""
    return [round(gpu.free * gpu.memory) for gpu in gpus if gpu.free is not None and gpu.memory]


def _training_memory(config: TrainConfig, model: str) -> str | None:
    """Compare weights, gradients and moments with the free memory of each GPU of this machine."""
    parameters, free = _parameters(model), _free(visible_gpus())
    if parameters is None or not free:
        return None
    several = config.engine != "torch"
    zero = ZeroSettings(config.zero_stage, config.offload) if several else None
    trained = 0 if getattr(config, "lora", None) is not None else parameters
    states = model_states(parameters, trained, zero, world_size(layout_of(config)) if several else 1)
    needed = states.weights + states.gradients + states.optimizer
    fix = f"--set {config.stage}.engine=deepspeed with more GPUs, or its offload=all or lora=16"
    return _enough(needed, min(free), f"weights, gradients and moments of {model} on each GPU", fix)


def _ranking_memory(recipe: Recipe, config: RankConfig, model: str, servers: Servers) -> str | None:
    """Compare the critic, and its reference if it has one, with the memory of the GPUs beside the agent's server."""
    phase = phase_of(servers.run, config.model_copy(update={"agent": recipe.train.agent}), servers.tables)
    placed = {} if phase is None else servers.place(phase.models, phase.computes)
    agent_gpus = [gpu for gpus in placed.values() for gpu in gpus]
    parameters, free = _parameters(model), _free([gpu for gpu in servers.gpus if gpu not in agent_gpus])
    if parameters is None:
        return None
    models = 1 if recipe.of("train-critic").get("variant") == "regression" else 2
    needed = models * HALF * parameters
    what = f"weights of critic and reference on {count(len(free), 'GPU')}"
    return _enough(needed, sum(free), what, "fewer replicas of the agent's server, or more GPUs")


def _scorer(task: str, config: EvalConfig) -> str:
    """Open the scorer, which finds the sandbox, or browsers and the model that compares pages."""
    names = {*SCORER_OPTIONS, "sandbox", "workers", "device"} - {"window", "pictures"}
    with TemporaryDirectory(prefix="sweet-") as folder:
        request = ScoringRequest(Path(folder), lambda _: None, **{name: getattr(config, name) for name in names})
        with task_kind(task).open_scorer(request) as scorer:
            return scorer.name


def _scripted(run: Run, config: RolloutConfig) -> str:
    """Load the tasks, and ask their kind whether the scripted human can play them."""
    dialogues = load_dialogues(run, config, Silent())
    dialogues.kind.check_scripted_human(dialogues.tasks)
    return count(len(dialogues.tasks), "task")


def _vllm() -> str:
    program = find_vllm()
    if program is None:
        fix = f"{install_command('gpu')}, or addresses of servers in the place of [servers]"
        raise UsageError("vllm is not installed.", where="[servers]", fix=fix)
    return program


def _gpus(servers: Servers, recipe: Recipe) -> str:
    check_phases(servers, recipe)
    full = [gpu for gpu in servers.gpus if gpu.free is not None and gpu.free < MEMORY_SHARE]
    if full:
        shares = ", ".join(f"{1 - (gpu.free or 0):.0%} of GPU {gpu.word}" for gpu in full)
        free = ",".join(gpu.word for gpu in servers.gpus if gpu not in full)
        fix = f"end what holds it, or CUDA_VISIBLE_DEVICES={free}"
        raise UsageError(f"Other processes hold memory that servers need: {shares}.", where="nvidia-smi", fix=fix)
    return count(len(servers.gpus), "GPU")


def _server(role: Role, name: str, urls: list[str]) -> str:
    from sweet.llm.remote import RemoteClient

    async def ask() -> None:
        client = await RemoteClient.open(name, urls, role, retry_timeout=0.0)
        await client.aclose()

    run_main(ask())
    return ", ".join(urls)


def _enough(needed: float, free: int, what: str, fix: str) -> str:
    """Return what is needed at least and what is free, in words; raise UsageError if less is free."""
    comparison = f"{what}: {format_bytes(needed)} needed, {format_bytes(free)} free"
    if needed > free:
        raise UsageError(f"Too little memory: {comparison}.", fix=fix)
    return comparison
