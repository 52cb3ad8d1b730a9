"""Pushes files to a repository of the model hub, by the hub's own client.

The client reads the token where it was stored (`hf auth login`, HF_TOKEN) and sends it to the hub alone
(`HF_ENDPOINT`, else huggingface.co). Nothing here reads, records or shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

from sweet.errors import ServerError, UsageError, first_line
from sweet.hf import without_progress_bars

RepoType = Literal["model", "dataset"]

_LOGIN = "hf auth login, with a token that may write"


def check_name(name: str) -> None:
    """Raise UsageError if this cannot be the name of a repository, ORG/NAME."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    why = "it must be ORG/NAME"
    if name.count("/") == 1 and all(name.split("/")):
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            why = first_line(error)
        else:
            return
    raise UsageError(f"{name!r:.100} cannot be a repository of the model hub: {why}.", where="ORG/NAME", fix="me/data")


def push_files(files: Mapping[str, Path | bytes], name: str, kind: RepoType, *, public: bool) -> str:
    """Create the repository if it does not exist, add or replace the files in one commit, and return its address.

    Args:
        files: their content, or where it is, by the paths in the repository.

    Raises:
        UsageError: no token is stored, or it may not write there.
        ServerError: the hub could not be reached, or answered with an error.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="sweet")
    with _reaching(name), without_progress_bars():
        api.create_repo(name, repo_type=kind, private=None if public else True, exist_ok=True)
        operations = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=found) for path, found in files.items()]
        commit = api.create_commit(name, operations, commit_message="Push by sweet", repo_type=kind)
    return str(commit.commit_url)


@contextmanager
def _reaching(name: str) -> Iterator[None]:
    """Convert the exceptions of the hub's client inside the block."""
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    connection_error = cast("type[Exception]", HfHubHTTPError.__bases__[0])
    try:
        yield
    except LocalTokenNotFoundError as error:
        raise UsageError("No token of the model hub is stored.", where=name, fix=_LOGIN) from error
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403):
            said = f": {reason.splitlines()[0]}" if (reason := str(error.server_message or "").strip()) else "."
            raise UsageError(f"The model hub does not let you write there{said}", where=name, fix=_LOGIN) from error
        raise ServerError(
            f"The model hub answered with an error: {first_line(error)}", where=name, fix="try again later"
        ) from error
    except OfflineModeIsEnabled as error:
        raise UsageError("The model hub is set to be offline.", where=name, fix="unset HF_HUB_OFFLINE") from error
    except (connection_error, ConnectionError) as error:
        raise ServerError(
            "The model hub could not be reached.", where=name, fix="check the connection (sweet doctor)"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # the client reads fields of the answer
        what = (
            f"The address of the model hub does not answer as the hub does: {type(error).__name__}: {first_line(error)}"
        )
        raise ServerError(what, where=name, fix="check HF_ENDPOINT and the proxy") from error


def license_of(model: str) -> str | None:
    """Return the license that a model's card states: of a directory its README.md, of a hub id the hub; None if it
    states none or cannot be read."""
    from huggingface_hub import HfApi, ModelCard

    try:
        if (card := Path(model) / "README.md").is_file():
            found = ModelCard.load(card).data.license
        elif "/" in model and not Path(model).exists():
            data = HfApi(library_name="sweet").model_info(model, timeout=10).card_data
            found = None if data is None else data.license
        else:
            found = None
    except Exception:  # a card may contain anything, and the hub may be out of reach: then it is not known
        return None
    return found if isinstance(found, str) else None
