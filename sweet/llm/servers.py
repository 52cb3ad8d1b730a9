"""The addresses of servers, the keys that they want, and the models that they serve.

The variables of the package `openai` are read as it reads them: `OPENAI_BASE_URL` (or `AZURE_OPENAI_ENDPOINT`) is the
address of a model that is given no other and is not on this machine, and an address of Azure has a deployment and a
version of the interface.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from sweet.errors import UsageError
from sweet.hints import option
from sweet.llm.base import Role
from sweet.tasks.packaged import PACKAGED

_ROLES: dict[Role, tuple[str, str, str]] = {
    "agent": ("agent", "agent_url", "SWEET_AGENT_API_KEY"),
    "sim": ("sim", "sim_url", "SWEET_SIM_API_KEY"),
    "judge": ("judge_model", "judge_url", "SWEET_JUDGE_API_KEY"),
    "writer": ("model", "url", "SWEET_SIM_API_KEY"),
    "checker": ("check_model", "check_url", "SWEET_JUDGE_API_KEY"),
}
MODEL_OPTIONS = {role: model for role, (model, _, _) in _ROLES.items()}
URL_OPTIONS = {role: url for role, (_, url, _) in _ROLES.items()}
KEY_VARIABLES = {role: (variable, "OPENAI_API_KEY") for role, (_, _, variable) in _ROLES.items()}
"""Environment variables that are read for an API key; keys are never read from options or files."""
AZURE_KEY = "AZURE_OPENAI_API_KEY"

MOST_NAMES, LONGEST_NAME = 20, 100
"""Names of models that an error lists, and characters of each."""

_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_DEPLOYMENTS = "/openai/deployments/"


# Keys -------------------------------------------------------------------------------------------------------------


def api_key(role: Role) -> str:
    """The API key; a placeholder if there is none, for servers that do not require one."""
    return next((key for name in KEY_VARIABLES[role] if (key := os.environ.get(name))), "none")


def azure_key(role: Role) -> str | None:
    """The API key for Azure: that of the role, then Azure's own; None if there is none."""
    return next((key for name in (KEY_VARIABLES[role][0], AZURE_KEY) if (key := os.environ.get(name))), None)


# Addresses --------------------------------------------------------------------------------------------------------


def base_url(text: str) -> str:
    """The base URL of an OpenAI-compatible API: `host:8000` and `http://host:8000/` become http://host:8000/v1.

    An address of Azure keeps its version (`?api-version=…`).

    Raises:
        UsageError: the text is not an http address.
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    has_version = usable and _is_azure(full) and [*parse_qs(parts.query)] == ["api-version"]
    if (
        not usable
        or parts.username
        or (parts.query and not has_version)
        or parts.fragment
        or any(c.isspace() for c in full)
    ):
        raise UsageError(f"{text!r} is not a server address.", where=text, fix="write it like http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    if _is_azure(full):
        return f"{parts.scheme}://{parts.netloc}{path}" + (f"?{parts.query}" if parts.query else "")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


@dataclass(frozen=True)
class AzureAddress:
    """An address of Azure OpenAI.

    Attributes:
        endpoint: scheme and host.
        deployment: what Azure calls a model, if the address names it.
        version: of the interface.
    """

    endpoint: str
    deployment: str | None
    version: str


def azure_address(url: str) -> AzureAddress | None:
    """Return the parts of a base URL of Azure; None if it is that of another server, or of Azure's newer interface
    `/openai/v1`, which is like OpenAI's.

    Raises:
        UsageError: the version is neither in the address nor in OPENAI_API_VERSION.
    """
    if not _is_azure(url):
        return None
    parts = urlsplit(url)
    version = next(iter(parse_qs(parts.query).get("api-version", ())), os.environ.get("OPENAI_API_VERSION"))
    if not version:
        raise UsageError(
            "Azure wants the version of its interface.",
            where=url,
            fix="export OPENAI_API_VERSION=2024-10-21, or end the address with ?api-version=2024-10-21",
        )
    deployment = parts.path.partition(_DEPLOYMENTS)[2].partition("/")[0]
    return AzureAddress(f"{parts.scheme}://{parts.netloc}", unquote(deployment) or None, version)


def _is_azure(url: str) -> bool:
    parts = urlsplit(url)
    if parts.path.rstrip("/").endswith("/openai/v1"):
        return False
    endpoint = urlsplit(os.environ.get("AZURE_OPENAI_ENDPOINT", ""))
    is_endpoint = bool(endpoint.netloc) and endpoint.netloc == parts.netloc
    return is_endpoint or (parts.hostname or "").endswith(_AZURE_HOSTS) or _DEPLOYMENTS in parts.path


def urls_of(model: str, urls: Sequence[str]) -> Sequence[str]:
    """Return the addresses of a model: those that were given, else that of the environment, where there is one and the
    model is neither packaged nor a directory."""
    address = os.environ.get("OPENAI_BASE_URL") or os.environ.get("AZURE_OPENAI_ENDPOINT")
    if urls or not address or model in PACKAGED or Path(model).expanduser().is_dir():
        return urls
    return [address]


def bind(
    host: str, port: int, *, where: str = "--host, --port", fix: str = "--port 0 selects a free one"
) -> socket.socket:
    """Return a socket that listens on an address; port 0 selects a free one.

    Args:
        where: the options that name it. fix: what else they may be.

    Raises:
        UsageError: the address cannot be bound.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"{host}:{port} cannot be listened on: {error}.", where=where, fix=fix) from error


def url_of(host: str, port: int) -> str:
    """The URL at which a server that listens on `host` and `port` is reached from this machine."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}/v1"


# Models -----------------------------------------------------------------------------------------------------------


def choose_name(names: Sequence[str], model: str, url: str, role: Role) -> str:
    """Return the name under which a server that serves `names` serves `model`.

    Raises:
        UsageError: it does not.
    """
    if model in names:
        return model
    is_path = model in PACKAGED or model.startswith((".", "/", "~")) or Path(model).is_dir()
    if len(names) == 1 and is_path:  # a location on some machine, which a server names otherwise
        return names[0]
    raise UsageError(
        f"The server does not serve {model}. It serves: {_listed(names)}.",
        where=url,
        fix=option(MODEL_OPTIONS[role], _shown(names[0])) if names else "start the server with the model",
    )


def assign(models: Sequence[str], served: Mapping[str, Sequence[str]], role: Role) -> dict[str, list[str]]:
    """Return the addresses that serve each of several models.

    Args:
        served: the names of the models that each address serves.

    Raises:
        UsageError: no address serves one of the models, or an address serves none of them.
    """
    addresses = {model: [url for url, names in served.items() if model in names] for model in models}
    at = "; ".join(f"{url} serves {_listed(names)}" for url, names in served.items())
    for model, urls in addresses.items():
        if not urls:
            raise UsageError(
                f"No server serves {_shown(model)}: {at}.",
                where=option(MODEL_OPTIONS[role], _shown(model)),
                fix=option(URL_OPTIONS[role], "URL"),
            )
    idle = next((url for url in served if not any(url in urls for urls in addresses.values())), None)
    if idle is not None:
        raise UsageError(
            f"This server serves none of {', '.join(map(_shown, models))}. It serves: {_listed(served[idle])}.",
            where=idle,
            fix=f"omit it, or name one of its models: {option(MODEL_OPTIONS[role], 'MODEL')}",
        )
    return addresses


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many there are besides."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return (", ".join(map(_shown, names[:MOST_NAMES])) or "nothing") + more


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
