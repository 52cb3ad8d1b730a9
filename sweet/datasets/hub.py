"""Convert the errors of the model hub's clients to errors of this program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from sweet.errors import ServerError, SweetError


@contextmanager
def reaching_hub(where: str, again: str) -> Iterator[None]:
    """Convert exceptions of the hub's clients inside the block.

    Args:
        where: the dataset, or one of its files.
        again: the command to repeat once the hub can be reached.

    Raises:
        ServerError: the hub could not be reached, or it is offline and its cache lacks the file.
        SweetError: the hub refused access.
    """
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The base class of the errors of the HTTP library that the client uses.
    connection_error = cast("type[Exception]", HfHubHTTPError.__bases__[0])
    refused = SweetError(
        "The hub has no such dataset, or denies you access.",
        where=where,
        fix="accept the terms on the dataset's page, then: hf auth login",
    )
    unreachable = ServerError(
        "The model hub could not be reached, and the file is not in its local cache.",
        where=where,
        fix=f"unset HF_HUB_OFFLINE, check the connection (sweet doctor), and run {again} again",
    )
    try:
        yield
    except RepositoryNotFoundError as error:  # also for gated repositories
        raise refused from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise unreachable from error
    except (EntryNotFoundError, RevisionNotFoundError) as error:
        raise SweetError("The dataset has no such file or revision.", where=where, fix="--revision main") from error
    except HfHubHTTPError as error:
        raise ServerError(
            f"The model hub answered with an error: {error}", where=where, fix="try again later"
        ) from error
    except connection_error as error:
        raise unreachable from error
    except OSError as error:
        if error.filename is not None:  # a full disk, a cache that cannot be written
            raise
        if isinstance(error, FileNotFoundError):  # the error of the library datasets for a missing repository
            raise refused from error
        raise unreachable from error
