"""What Forebay needs to know about a kind of server."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from forebay.adapters.engines import status as shared
from forebay.adapters.engines.batching import BatchLimits
from forebay.adapters.engines.exposition import Exposition, declares, parse
from forebay.adapters.engines.reply import as_dict, as_list
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply
    from forebay.core.model import Outcome, Signal

METRICS = "/metrics"
MODEL_LISTS = ("/v1/models", "/models")


class Engine(Protocol):
    """One kind of server. Pure: it is handed replies, and asks for nothing.

    `replies` holds what was read, by path relative to the server's root. A plug-in subclasses this
    and registers the class in the entry point group ``forebay.engines``.
    """

    name: ClassVar[str]
    paths: ClassVar[tuple[str, ...]] = ()  # to read for a signal, the most telling first
    # Whether its embeddings take token ids (of the model's own tokenizer) in the place of texts.
    takes_token_ids: ClassVar[bool] = False

    def fits(self, replies: Mapping[str, Reply]) -> bool:
        """Whether the server that gave these replies is of this kind."""
        ...

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:
        """What the engine says about itself.

        Args:
            replies: one for each of `paths`, as far as they could be read.
            model: id of the model in question.
            now: when they were read.

        Raises:
            ScrapeFailed: the replies tell nothing, though the engine should.
        """
        ...

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
        """What a response to a request says about the endpoint; see `status.classify`."""
        return shared.classify(status, headers, body)

    def batch_limits(self, replies: Mapping[str, Reply]) -> BatchLimits:
        """How large a batch it takes, where it tells."""
        del replies
        return BatchLimits()


def metrics(replies: Mapping[str, Reply], wanted: frozenset[str]) -> Exposition | None:
    """The wanted samples of the metrics page; None when the server says that it has no such page.

    Raises:
        ScrapeFailed: when the page was not read, or is no exposition.
    """
    reply = replies.get(METRICS)
    if reply is None:
        raise ScrapeFailed(f"{METRICS} was not read")
    if reply.absent:
        return None
    check(METRICS, reply)
    return parse(reply.text(), wanted)


def check(path: str, reply: Reply) -> None:
    """Let only a success pass.

    Raises:
        ScrapeFailed: for every other status.
    """
    if reply.ok:
        return
    way_out = "; check api_key" if reply.status in {401, 403} else ""
    raise ScrapeFailed(f"{path} answered {reply.status}{way_out}")


def exposes(replies: Mapping[str, Reply], *prefixes: str) -> bool:
    """Whether the metrics page declares a name that starts with one of these."""
    reply = replies.get(METRICS)
    if reply is None or not reply.ok:
        return False
    try:
        return declares(reply.text(), *prefixes)
    except ScrapeFailed:
        return False


def listed_by(replies: Mapping[str, Reply], owner: str) -> bool:
    """Whether a list of models names `owner` as their owner, as each engine does in its own way."""
    return any(
        as_dict(entry).get("owned_by") == owner
        for path in MODEL_LISTS
        if path in replies
        for entry in as_list(as_dict(replies[path].json()).get("data"))
    )


def names(prefixes: tuple[str, ...], families: tuple[str, ...]) -> frozenset[str]:
    """Every prefix put before every family: the sample names to ask for."""
    return frozenset(prefix + family for prefix in prefixes for family in families)


def above_zero(*waiting: float | None) -> bool | None:
    """Whether any of these queues holds somebody; None when that cannot be told."""
    if any(count is not None and count > 0 for count in waiting):
        return True
    return None if None in waiting else False
