"""The errors' page: seven kinds, and the one answer that each edge gives to each."""

from __future__ import annotations

import inspect

from catalog.errors import KINDS, LakeError
from tools.reference.markdown import code, paragraph, table

_NEXT = {
    "invalid": "mend the input; nothing was written",
    "not_found": "it is not there, or not for you",
    "conflict": "look again, then perhaps try again",
    "denied": "ask for the role",
    "unverified": "do not try again: find out who changed what",
    "unavailable": "try again later",
    "internal": "tell whoever runs the lake",
}


def page() -> str:
    own = (one for one in LakeError.__subclasses__() if one.__module__ == LakeError.__module__)
    classes = {one.kind.name: one for one in own}
    lines = ["# Errors", "", paragraph(LakeError.__doc__ or ""), ""]
    rows = [
        (
            code(kind.name),
            code(classes[kind.name].__name__),
            str(kind.http_status),
            str(kind.exit_code),
            kind.decision.value,
            _NEXT[kind.name],
        )
        for kind in KINDS
    ]
    lines += table(("kind", "in Python", "HTTP status", "exit code", "a queue's message", "what to do next"), rows)
    for kind in KINDS:
        own = classes[kind.name].__dict__.get("__doc__")
        if own:
            lines += [f"- `{kind.name}`: {paragraph(inspect.cleandoc(own))}"]
    lines += ["", "## As data", "", "`strandline -o json` writes to stderr, and every log line of an error carries,"]
    lines += ["the same three fields; `subject` is there when one thing is to blame:", "", "```json"]
    lines += ['{"error": {"kind": "not_found", "message": "there is no table a.tides", "subject": "a.tides"}}']
    lines += ["```", "", "Over HTTP an error is `application/problem+json` (RFC 9457) whose `type` is"]
    lines += ["`urn:strandline:<kind>`: see [the HTTP API](../guide/api.md#rules-that-hold-everywhere)."]
    return "\n".join(lines)
