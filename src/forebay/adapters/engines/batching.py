"""How large a batch an embedding server takes; a batch over its limit is refused, not split."""

from __future__ import annotations

import re
from dataclasses import dataclass

TEI_MAX_BODY_BYTES = 2_000_000  # its --payload-limit unless set; it does not tell

_TOO_MANY = re.compile(
    rb"maximum allowed batch size (\d{1,9})"  # TEI
    rb"|at most (\d{1,9}) items"  # Infinity and others that validate with pydantic
)
_TOO_LONG = b"length limit exceeded"  # TEI, for the body


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one endpoint takes; None means not told.

    Args:
        max_inputs: inputs in one request.
        max_body_bytes: bytes in one request's body.
        max_inputs_in_flight: inputs in all requests together; more are refused for load, even
            by an idle server.
    """

    max_inputs: int | None = None
    max_body_bytes: int | None = None
    max_inputs_in_flight: int | None = None


def limits_from_refusal(status: int, body: bytes) -> BatchLimits:
    """What a refusal says about the limits, for servers that do not tell them beforehand.

    TEI answers 413 or 422 to too many inputs, depending on its version, and 413 in plain text to
    too many bytes (text-embeddings-inference, router/src/http/server.rs).
    """
    if status not in {400, 413, 422}:
        return BatchLimits()
    start = body[:4096]
    if found := _TOO_MANY.search(start):
        return BatchLimits(max_inputs=max(1, int(found[1] or found[2])))
    if _TOO_LONG in start:
        return BatchLimits(max_body_bytes=TEI_MAX_BODY_BYTES)
    return BatchLimits()
