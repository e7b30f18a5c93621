"""What goes wrong while tables and objects are looked at, as the lake's own errors: AWS's refusals and Iceberg's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError

from catalog import refusals
from catalog.errors import Conflict, NotFound, Unavailable


@contextmanager
def explained(subject: str) -> Iterator[None]:
    """Within the block, an error of a service becomes ours, saying about what it was; a defect passes as it is."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise refusals.explain(error, subject) from error
    except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError) as error:
        raise NotFound(f"{subject}: {error}", subject=subject) from error
    except CommitFailedException as error:
        raise Conflict(f"{subject}: {error}", subject=subject) from error
    except OSError as error:  # no answer, or none that could be read
        raise Unavailable(f"{subject}: {error}", subject=subject) from error
