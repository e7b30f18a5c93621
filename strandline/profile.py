"""The profile that `strandline login` stores: one endpoint and its token, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from strandline.errors import Invalid

FILE = "profile.json"


@dataclass(frozen=True, slots=True)
class Profile:
    endpoint: str
    token: str = field(repr=False)


def path() -> Path:
    """`strandline/profile.json` in the user's configuration directory: XDG_CONFIG_HOME, ~/.config, or %APPDATA%."""
    configured = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
    folder = Path(configured) if configured else Path.home() / ".config"
    return folder / "strandline" / FILE


def load() -> Profile | None:
    """The stored profile; None if nobody is logged in. Invalid if the file is broken or others can read it."""
    file = path()
    try:
        shared_mode = file.stat().st_mode & 0o077
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"the profile {file} cannot be read: {error}. Run `strandline login` again") from None
    if shared_mode and sys.platform != "win32":
        raise Invalid(f"the profile {file} contains a token and other users can read it: run `chmod 600 {file}`")
    try:
        stored = json.loads(text)
        endpoint, token = stored["endpoint"], stored["token"]
        if not (isinstance(endpoint, str) and isinstance(token, str)):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        # The cause is not shown: it could quote the token.
        raise Invalid(f"the profile {file} is broken: run `strandline login` again") from None
    return Profile(endpoint, token)


def save(profile: Profile) -> Path:
    """Replaces the stored profile atomically; the file is created with mode 0600."""
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".{FILE}.{uuid4().hex}")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"endpoint": profile.endpoint, "token": profile.token}, stream)
        temporary.replace(file)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return file


def remove() -> bool:
    """Deletes the stored profile; returns whether there was one."""
    try:
        path().unlink()
    except FileNotFoundError:
        return False
    return True
