"""How large a batch an embedding server takes; a batch over its limit is refused, not split."""

from __future__ import annotations

import re
from dataclasses import dataclass

TEI_MAX_BODY_BYTES = 2_000_000  # its --payload-limit unless set; it does not tell

_TOO_MANY = re.compile(
    rb"maximum allowed batch size (\d{1,9})"  # TEI
    rb"|at most (\d{1,9}) (?:items|texts|inputs|requests)"  # Infinity and others with pydantic
    rb"|expected an array with maximum length (\d{1,9})"  # OpenAI
    rb"|batch size limit is (\d{1,9})"
    rb"|batch size is invalid, it should not be larger than (\d{1,9})",
    re.IGNORECASE,
)
_TOO_MANY_TOKENS = re.compile(
    rb"max(?:imum)?(?: of)? (\d{1,9}) tokens per request"  # OpenAI
    rb"|max allowed tokens per submitted batch is (\d{1,9})",
    re.IGNORECASE,
)
_TOO_LONG = b"length limit exceeded"  # TEI, for the body


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one endpoint takes; None means not known.

    Args:
        max_inputs: inputs in one request.
        max_body_bytes: bytes in one request's body.
        max_inputs_in_flight: inputs in all requests together; more are refused for load, even
            by an idle server.
        max_tokens: tokens in one request, all its inputs together.
    """

    max_inputs: int | None = None
    max_body_bytes: int | None = None
    max_inputs_in_flight: int | None = None
    max_tokens: int | None = None

    def within(self, other: BatchLimits) -> BatchLimits:
        """What keeps within both."""
        return BatchLimits(
            max_inputs=_smaller(self.max_inputs, other.max_inputs),
            max_body_bytes=_smaller(self.max_body_bytes, other.max_body_bytes),
            max_inputs_in_flight=_smaller(self.max_inputs_in_flight, other.max_inputs_in_flight),
            max_tokens=_smaller(self.max_tokens, other.max_tokens),
        )

    def or_else(self, other: BatchLimits) -> BatchLimits:
        """These, and where they say nothing, `other`."""
        return BatchLimits(
            max_inputs=self.max_inputs or other.max_inputs,
            max_body_bytes=self.max_body_bytes or other.max_body_bytes,
            max_inputs_in_flight=self.max_inputs_in_flight or other.max_inputs_in_flight,
            max_tokens=self.max_tokens or other.max_tokens,
        )


NO_LIMITS = BatchLimits()


def limits_from_refusal(status: int, body: bytes) -> BatchLimits:
    """What a refusal says about the limits, for servers that do not tell them beforehand.

    TEI answers 413 or 422 to too many inputs, depending on its version, and 413 in plain text to
    too many bytes (text-embeddings-inference, router/src/http/server.rs).
    """
    if status not in {400, 413, 422}:
        return NO_LIMITS
    start = body[:4096]
    if found := _TOO_MANY.search(start):
        return BatchLimits(max_inputs=_told(found))
    if found := _TOO_MANY_TOKENS.search(start):
        return BatchLimits(max_tokens=_told(found))
    if _TOO_LONG in start:
        return BatchLimits(max_body_bytes=TEI_MAX_BODY_BYTES)
    return NO_LIMITS


def _told(found: re.Match[bytes]) -> int:
    return max(1, int(next(filter(None, found.groups()))))


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
