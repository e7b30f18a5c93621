"""The function of the public routes: health, the timeline, the OpenAPI document. The API's own code, with a role that
can read nothing but the timeline, and with instances of its own: queries cannot keep it busy."""

from __future__ import annotations

from functions.api import handler

__all__ = ["handler"]
