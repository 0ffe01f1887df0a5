"""Every error that Forebay raises on purpose, in one hierarchy."""

from __future__ import annotations


class ForebayError(Exception):
    """Base of all errors raised by Forebay."""


class ConfigError(ForebayError):
    """A configuration that must not start; the message names file, key, value and the way out."""


class UsageError(ForebayError, RuntimeError):
    """The library is used in a way that cannot work; the message says how it can."""


class ItemsError(ForebayError):
    """The items of a fan-out came to an early end: their iterator raised, which is the cause.

    Attributes:
        results: what had been done by then, where errors are collected; in the order of the items.
    """

    results: list[object] | None = None


class CallbackError(ForebayError):
    """A function that was given to be told of something raised; that is the cause."""


class Rejected(ForebayError):  # noqa: N818 - a refusal is an answer, not a fault
    """A request that was not admitted.

    Args:
        reason: one of the short, stable reasons of `forebay.core.model.Reason`.
        message: what a person should read.
        retry_after_s: seconds after which trying again makes sense, if that is known.
    """

    def __init__(self, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class RequestFailed(ForebayError):  # noqa: N818 - as the others of what became of a request
    """A request that Forebay sent for its caller, and that was not answered as it should.

    Args:
        code: short and stable, for programs: ``input_refused``, ``upstream_error``, …
        message: what a person should read.
        status: of the answer, or what it would have been.
    """

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class UpstreamError(ForebayError):
    """An endpoint could not be reached, broke the protocol, or went away.

    Args:
        message: what happened, with the endpoint named.
        reused: the connection had served a request before (the server may just have closed it).
        response_started: at least one byte of a response had been received.
    """

    def __init__(
        self, message: str, *, reused: bool = False, response_started: bool = False
    ) -> None:
        super().__init__(message)
        self.reused = reused
        self.response_started = response_started


class ConnectFailed(UpstreamError):  # noqa: N818
    """No connection could be made (refused, unreachable, name not found, TLS)."""


class UpstreamTimeout(UpstreamError):  # noqa: N818
    """An endpoint did not do something in the time it had."""


class ScrapeFailed(ForebayError):  # noqa: N818
    """An engine's own metrics could not be read this time: what it does is unknown, not zero."""


class PoolExhausted(ForebayError):  # noqa: N818
    """All connections that a client may have are in use, or this side cannot make another.

    This side is saturated; it says nothing about the endpoint, and must not count against it.
    """
