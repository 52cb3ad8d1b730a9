"""`sweet doctor`: what this machine has and lacks, and the commands that fix it.

A check tests the component itself if that is cheap (it runs a jail, opens a connection), and only its installed package
if a test would take a minute (vllm, deepspeed). Code that may crash or hang, such as importing torch, runs in a
separate Python process with a time-out. A check that fails unexpectedly is reported as a problem: the doctor itself
never fails.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from sweet.credit.names import RULES
from sweet.credit.registry import rule_class
from sweet.errors import SweetError, UsageError
from sweet.installation import DISTRIBUTION, PACKAGE, VERSION, install_command, installed_version, unsuitable_versions
from sweet.learn.openrlhf import PYTHON_VARIABLE, find_python
from sweet.model_files import check_model_files
from sweet.paths import RUNS
from sweet.plugins import CREDIT, Plugin, plugins
from sweet.stages.base import StageConfig
from sweet.tasks.registry import task_kind
from sweet.units import count, format_bytes

Status = Literal["ok", "missing", "problem"]
Found = tuple[Status, str, str]
"""The status of a component, what was found, and the command that fixes it (empty if there is nothing to fix)."""

UNRELATED = "sweet-rl"
"""A package on PyPI whose module is called sweet, too."""
MIN_FREE = 2 * 1024**3
"""Bytes of free space below which the disk is a problem; a demo needs about a tenth of it."""

IMPORT_TIMEOUT = 120.0
"""Seconds to wait for another Python to import torch."""
HUB_TIMEOUT = 5.0
"""Seconds to wait for the model hub."""


class DoctorConfig(StageConfig):
    runs: Path = RUNS
    """Folder of the runs, for the free disk space."""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        status: `missing` is not installed, `problem` is installed but does not work.
        found: what was found.
        why: what it is needed for.
        fix: the command that fixes it; empty if there is nothing to fix.
        required: the pipeline on the packaged dataset and agent needs it.
    """

    name: str
    status: Status
    found: str
    why: str
    fix: str = ""
    required: bool = False


CheckFunction = Callable[..., list[Check]]
Look = Callable[..., Found | list[Check]]
"""Looks at one component, or at several of a kind."""


def component(name: str, why: str, *, required: bool = False) -> Callable[[Look], CheckFunction]:
    """Make a function that looks at a component its check. If it fails itself, that is a problem of the component."""

    def declare(look: Look) -> CheckFunction:
        @wraps(look)
        def check(*arguments: Any) -> list[Check]:
            try:
                found = look(*arguments)
            except Exception as error:
                what = f"the check itself failed: {type(error).__name__}: {error}"
                found = "problem", what, "report this as a bug in sweet"
            if isinstance(found, list):
                return found
            status, what, fix = found
            return [Check(name, status, what, why, fix, required)]

        return check

    return declare


def run_doctor(config: DoctorConfig) -> list[Check]:
    """Run all checks and return them in the order of display. All but the one that forks processes run in parallel."""
    sandbox = check_sandbox()
    checks: Sequence[Callable[[], list[Check]]] = (
        *(check_python, check_installation, check_packages),
        *(lambda: check_torch(IMPORT_TIMEOUT), check_transformers, check_packaged_agents),
        *(lambda: check_disk(config.runs), lambda: sandbox, lambda: check_hub(HUB_TIMEOUT)),
        *(check_kinds, check_rules, check_colbench),
        *(check_vllm, check_deepspeed, check_openrlhf, check_firefox, check_assets),
    )
    with ThreadPoolExecutor(10) as pool:
        return [found for made in pool.map(lambda check: check(), checks) for found in made]


def healthy(checks: list[Check]) -> bool:
    """Return whether all required checks are ok."""
    return all(check.status == "ok" for check in checks if check.required)


def as_json(checks: list[Check]) -> dict[str, Any]:
    return {"stage": "doctor", "healthy": healthy(checks), "checks": [asdict(check) for check in checks]}


def _run_python(python: str, code: str, timeout: float) -> tuple[str | None, str]:
    """Run code in another Python. Return (its stdout, "") or (None, the reason of the failure)."""
    try:
        process = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {timeout:g} seconds"
    except OSError as error:
        return None, str(error)
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        return None, last[0]
    return process.stdout.strip(), ""


@component("Python", "everything", required=True)
def check_python() -> Found:
    cores = count(os.cpu_count() or 1, "core")
    found = f"{platform.python_version()} at {sys.executable}, {cores}, {platform.platform(terse=True)}"
    return "ok", found, ""


@component("sweet", "this program, and the kinds of tasks that come with it", required=True)
def check_installation() -> Found:
    """Check that the imported `sweet` is this project, and that its distribution is installed: kinds of tasks are found
    by its metadata. `sweet-rl` is an unrelated package on PyPI, whose module has the same name."""
    imported = Path(PACKAGE, "__init__.py")
    unrelated = installed_version(UNRELATED)
    if unrelated is not None:
        what = f"the unrelated package {UNRELATED} {unrelated} is installed, whose module is called sweet too"
        return "problem", what, f"pip uninstall {UNRELATED}, then {install_command()}"
    if installed_version(DISTRIBUTION) is None:
        what = f"{imported.parent} is not installed: {DISTRIBUTION} has no metadata"
        return "problem", what, install_command()
    installed = Path(str(importlib.metadata.distribution(DISTRIBUTION).locate_file("sweet/__init__.py")))
    if installed.exists() and not installed.samefile(imported):
        what = f"another package called sweet is in {installed.parent}; this one is {imported.parent}"
        return "problem", what, f"pip uninstall the package that installed it, then {install_command()}"
    return "ok", f"{VERSION} at {imported.parent}", ""


@component("packages", "the versions that were tested; others may fail, or compute other numbers")
def check_packages() -> Found:
    if wrong := unsuitable_versions():
        return "problem", ", ".join(wrong.values()), install_command()
    return "ok", "all versions are those that sweet allows", ""


_TORCH = """
import json, torch
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
print(json.dumps({"torch": torch.__version__, "gpus": gpus, "threads": torch.get_num_threads()}))
"""

_LEARNING = "the embedded engine and all training"


@component("torch", _LEARNING, required=True)
def check_torch(timeout: float) -> Found:
    version = installed_version("torch")
    if version is None:
        return "missing", "not installed", install_command()
    output, problem = _run_python(sys.executable, _TORCH, timeout)
    if output is None:
        return "problem", f"{version} does not import: {problem}", install_command()
    facts = json.loads(output.splitlines()[-1])
    device = ", ".join(facts["gpus"]) or f"no GPU, {count(facts['threads'], 'CPU thread')}"
    return "ok", f"{facts['torch']}, {device}", ""


@component("transformers", _LEARNING, required=True)
def check_transformers() -> Found:
    return _installed("transformers", install_command())


def _installed(package: str, fix: str) -> Found:
    version = installed_version(package)
    return ("missing", "not installed", fix) if version is None else ("ok", version, "")


@component("packaged agents", "sweet demo, and the default agent of every command", required=True)
def check_packaged_agents() -> Found:
    from sweet.tasks.packaged import PACKAGED

    for folder in PACKAGED.values():
        if wrong := checkpoint_problem(folder):
            return "problem" if folder.is_dir() else "missing", wrong, install_command()
    size = sum(file.stat().st_size for folder in PACKAGED.values() for file in folder.iterdir() if file.is_file())
    return "ok", f"{', '.join(PACKAGED)}, {format_bytes(size)}", ""


def checkpoint_problem(folder: Path) -> str | None:
    """Return what is wrong with a model directory. Checks configuration, tokenizer and the header of the weights."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        if not (folder / name).is_file():
            return f"{folder / name} does not exist"
    try:
        check_model_files(folder)
        json.loads((folder / "tokenizer.json").read_bytes())
    except UsageError as error:
        return f"{error.where}: {error.what}"
    except ValueError as error:
        return f"{folder / 'tokenizer.json'} is not JSON: {error}"
    return None


_RUNNING = "running the code that an agent delivers"


@component("sandbox", _RUNNING, required=True)
def check_sandbox() -> list[Check]:
    """Return one check per tier, and a required one: that at least one of the jails works."""
    from sweet.sandbox.tiers import probe_tiers

    tiers = [tier for tier in probe_tiers() if tier.name != "unsafe"]
    used = next((tier.name for tier in tiers if tier.works), None)
    install = next((tier.fix for tier in tiers if tier.fix), "apt install bubblewrap")
    checks = [
        Check("sandbox", "problem", "no jail works here", _RUNNING, install, required=True)
        if used is None
        else Check("sandbox", "ok", f"{used} is used", _RUNNING, required=True)
    ]
    for tier in tiers:
        status: Status = "ok" if tier.works else "missing"
        why, fix = f"{_RUNNING} (one of the jails is enough)", "" if tier.works else tier.fix or ""
        checks.append(Check(f"sandbox {tier.name}", status, tier.detail, why, fix))
    return checks


@component("disk", "run directories", required=True)
def check_disk(runs: Path) -> Found:
    """Check free space and write permission of the folder of runs, or of its nearest existing parent."""
    folder = runs.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{format_bytes(free)} free at {folder}"
    if not os.access(folder, os.W_OK):
        return "problem", f"{folder} cannot be written", f"chmod u+w {folder}"
    return ("problem", found, f"du -sh {folder}/* | sort -h") if free < MIN_FREE else ("ok", found, "")


@component("model hub", "models and datasets by name (ColBench, any model except the packaged one)")
def check_hub(timeout: float) -> Found:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "missing", "HF_HUB_OFFLINE is set: not checked", "unset HF_HUB_OFFLINE"
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    fix = f"curl -sI {address}   (set HTTPS_PROXY for a proxy, HF_ENDPOINT for a mirror)"
    if not address.startswith(("http://", "https://")):
        return "problem", f"HF_ENDPOINT is not an address: {address}", "unset HF_ENDPOINT"
    request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "sweet-doctor"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return "ok", f"{address} answers {answer.status}", ""
    except urllib.error.HTTPError as error:
        error.close()
        found = f"{address} answers {error.code}"
        return ("ok", found, "") if error.code < 500 else ("problem", found, fix)
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return "missing", f"{address} cannot be reached: {reason}", fix


@component("ColBench", "the tasks of the paper; without them the packaged tasks are used")
def check_colbench() -> Found:
    from sweet.tasks.files import COLBENCH_SPLITS, downloaded_file

    existing = [split for split in COLBENCH_SPLITS if downloaded_file("colbench", split).is_file()]
    folder = downloaded_file("colbench", "test").parent
    if len(existing) == len(COLBENCH_SPLITS):
        return "ok", f"{', '.join(existing)} in {folder}", ""
    return "missing", f"not in {folder}", "sweet data colbench"


@component("kinds of tasks", "tasks of other packages")
def check_kinds() -> Found | list[Check]:
    """Import and check the kinds of tasks of other packages."""
    installed = plugins()
    ours = [name for name, found in installed.items() if any(plugin.ours for plugin in found)]
    others = [plugin for found in installed.values() for plugin in found if not plugin.ours]
    checks = [_check_plugin(plugin, "task", ours, task_kind) for plugin in others]
    return checks or ("ok", f"only the built-in ones: {', '.join(ours)}", "")


@component("credit rules", "trainings by a rule of another package")
def check_rules() -> Found | list[Check]:
    """Import and check the credit rules of other packages."""
    others = [plugin for found in plugins(CREDIT).values() for plugin in found]
    checks = [_check_plugin(plugin, "algorithm", RULES, rule_class) for plugin in others]
    return checks or ("ok", f"only the built-in ones: {', '.join(RULES)}", "")


def _check_plugin(plugin: Plugin, option: str, ours: Collection[str], load: Callable[[str], Any]) -> Check:
    """Check a kind of task or a credit rule of another package.

    Args:
        option: that chooses it by its name.
        ours: the names of the built-in ones.
        load: imports it by its name, and raises SweetError if it is wrong.
    """
    name = f"--{option} {plugin.name}"
    why = f"what is called with {name}"
    if plugin.name in ours:
        what = f"{plugin} has the name of a built-in one; {name} is the built-in one"
        return Check(name, "problem", what, why, f"rename that of {plugin.package}")
    try:
        load(plugin.name)
    except SweetError as error:
        return Check(name, "problem", f"{error.what} {error.where or ''}".strip(), why, error.fix or "")
    return Check(name, "ok", str(plugin), why)


@component("vllm", "serving agents and simulated humans of 1B parameters or more")
def check_vllm() -> Found:
    version, program = installed_version("vllm"), shutil.which("vllm")
    if version is None and program is None:
        fix = f"{install_command('gpu')}, or give the address of a server with --agent-url and --sim-url"
        return "missing", "not installed", fix
    if program is None:
        fix = "pip install --force-reinstall --no-deps vllm"
        return "problem", f"{version}, but no vllm command on PATH", fix
    return "ok", f"{version or 'of another environment'} at {program}", ""


@component("deepspeed", "training on more than one GPU or node")
def check_deepspeed() -> Found:
    return _installed("deepspeed", install_command("gpu"))


@component("openrlhf", "train-actor --engine openrlhf")
def check_openrlhf() -> Found:
    named = bool(os.environ.get(PYTHON_VARIABLE))
    try:
        python, version = find_python()
    except UsageError as error:
        return "problem" if named else "missing", error.what, error.fix or ""
    return "ok", f"{version} in the environment of {python}" if named else version, ""


@component("Firefox", "frontend tasks (--task html): screenshots of pages")
def check_firefox() -> Found:
    from sweet.render.firefox import find_firefox

    try:
        found = find_firefox()
    except SweetError as error:
        return "missing", f"{error.what} {error.where or ''}".strip(), error.fix or ""
    version = f" {installed_version('playwright')}" if found.driver == "playwright" else ""
    return "ok", f"{found}{version}", ""


@component("page assets", "frontend pages that load Tailwind, like those of ColBench")
def check_assets() -> Found:
    from sweet.render.assets import ASSETS, asset_folder

    folder = asset_folder()
    if missing := [asset.name for asset in ASSETS if not (folder / asset.name).is_file()]:
        return "missing", f"{', '.join(missing)} not in {folder}", "sweet data assets"
    return "ok", f"{count(len(ASSETS), 'file')} in {folder}", ""
