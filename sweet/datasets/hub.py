"""What can go wrong between this machine and the model hub, in words for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from sweet.errors import ServerError, SweetError


@contextmanager
def reaching_hub(where: str, again: str) -> Iterator[None]:
    """What the hub's clients raise inside comes out as an error of ours.

    Args:
        where: the dataset, or the file of it.
        again: the command that goes on once the hub can be reached.

    Raises:
        ServerError: the hub could not be reached, or reads of the cache found nothing while offline.
        SweetError: the hub refused.
    """
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # Whatever HTTP library its client is built on: the root of that library's errors.
    lost_on_the_way = cast("type[Exception]", HfHubHTTPError.__bases__[0])
    refused = SweetError(
        "The hub has no such dataset, or does not hand it out to you.",
        where=where,
        fix="accept the terms on the dataset's page, then: hf auth login",
    )
    unreachable = ServerError(
        "The model hub could not be reached, and what was asked for is not in its local cache.",
        where=where,
        fix=f"unset HF_HUB_OFFLINE, check the connection (sweet doctor), and run {again} again",
    )
    try:
        yield
    except RepositoryNotFoundError as error:  # gated ones included
        raise refused from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise unreachable from error
    except (EntryNotFoundError, RevisionNotFoundError) as error:
        raise SweetError("The dataset has no such file or revision.", where=where, fix="--revision main") from error
    except HfHubHTTPError as error:
        raise ServerError(
            f"The model hub answered with an error: {error}", where=where, fix="try again later"
        ) from error
    except lost_on_the_way as error:
        raise unreachable from error
    except OSError as error:
        if error.filename is not None:  # a full disk, a cache that cannot be written
            raise
        if isinstance(error, FileNotFoundError):  # how the library datasets says the same
            raise refused from error
        raise unreachable from error
