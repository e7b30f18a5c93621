"""Access: callers and their roles, the API's routes, idempotency keys and presigned URLs.

Decisions are pure functions. Nothing here verifies a token's signature: API Gateway has done that.
"""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
