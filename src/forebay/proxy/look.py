"""What a request says about itself: its model, whether it streams, its class, its size.

Only the fields that are needed are decoded; the body itself goes on as it came.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.proxy.message import Request

_BOUNDARY = re.compile(rb'boundary=(?:"([^"]+)"|([^\s";,]+))', re.IGNORECASE)
_NAMED_MODEL = re.compile(
    rb'^content-disposition:[^\r\n]*;\s*name=(?:"model"|model)\s*(?:;|\r?$)',
    re.IGNORECASE | re.MULTILINE,
)
_PART_HEAD_BYTES = 1024
# A form is looked through up to here; transcriptions and edits of images have some ten parts.
_MOST_PARTS = 256
_GZIP = zlib.MAX_WBITS | 16
_NO_KEY = frozenset({b"", b"null", b'""'})
# A key is hashed again and again while its request waits; what is longer counts by its beginning.
_KEY_BYTES = 256


class Look(msgspec.Struct, frozen=True):
    """The fields of a request's body that decide how it is treated.

    Args:
        model: as named.
        stream: whether a stream is asked for.
        service_tier: OpenAI's name for a class of requests.
        input: its JSON as it came, nothing if there is none; embeddings look into it.
        encoding_format: likewise.
        prompt_cache_key: likewise; OpenAI's name for what requests with a common beginning share.
        user: likewise; what that was called before.
    """

    model: str | None = None
    stream: bool | None = None
    service_tier: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    encoding_format: msgspec.Raw = msgspec.Raw()
    prompt_cache_key: msgspec.Raw = msgspec.Raw()
    user: msgspec.Raw = msgspec.Raw()

    @property
    def affinity(self) -> str | None:
        """What the body has in common with others that should run at the same endpoint."""
        for raw in (self.prompt_cache_key, self.user):
            key = bytes(raw)
            if key not in _NO_KEY:
                return key[:_KEY_BYTES].decode(errors="replace").strip('"')
        return None


_decoder = msgspec.json.Decoder(Look)


def look_at(request: Request, body: bytes) -> Look:
    """Read what matters from a request's body, form or query.

    Args:
        request: as it came.
        body: its body, decoded.

    Raises:
        Refused: the body is not what it claims to be.
    """
    if not body:
        return Look(model=_from_query(request.query))
    if is_form(request):
        return _look_at_form(body, request.fields[b"content-type"])
    return _look_at_json(body)


def is_form(request: Request) -> bool:
    """Whether a request's body is a multipart form."""
    return request.fields.get(b"content-type", b"")[:10].lower() == b"multipart/"


def decoded(request: Request, limit: int) -> bytes:
    """The body with its gzip undone, if it has any; from then on the request is one without.

    Raises:
        Refused: broken gzip, more than `limit` bytes, or another encoding.
    """
    encoding = request.fields.get(b"content-encoding")
    if encoding is None or encoding.strip().lower() in {b"", b"identity"}:
        return request.body
    if encoding.strip().lower() not in {b"gzip", b"x-gzip"}:
        raise Refused(
            415,
            f"content-encoding {encoding.decode('latin-1')!r} is not supported; use gzip or none",
            code="unsupported_encoding",
        )
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        body = unpacker.decompress(request.body, limit + 1)
    except zlib.error:
        raise Refused(400, "the body is not valid gzip", code="invalid_gzip") from None
    if len(body) > limit:
        raise too_large(limit)
    if not unpacker.eof:
        raise Refused(400, "the gzip body is cut short", code="invalid_gzip")
    if unpacker.unused_data:
        raise Refused(400, "the gzip body goes on after its end", code="invalid_gzip")
    # The packed body is not kept beside the other, nor the header that would describe it.
    request.body = body
    request.headers = [pair for pair in request.headers if pair[0] != b"content-encoding"]
    del request.fields[b"content-encoding"]
    return body


def too_large(limit: int) -> Refused:
    """The refusal of a body over the limit."""
    return Refused(413, f"the request body is over the limit of {limit} bytes", code="too_large")


def _look_at_json(body: bytes) -> Look:
    try:
        # What is skipped is not checked for UTF-8 by the decoder; the endpoint would choke on it.
        if not body.isascii():
            body.decode()
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the request body is wrong: {error}", code="invalid_body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(
            400, f"the request body is not valid JSON: {error}", code="invalid_json"
        ) from None


def form_models(body: bytes, content_type: bytes) -> Iterator[tuple[int, int]]:
    """Where the first parts of a multipart form name a model: each name's start and stop.

    Raises:
        Refused: the form has no boundary.
    """
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise Refused(400, "the multipart body has no boundary", code="invalid_form")
    mark = b"--" + (boundary[1] or boundary[2])
    at = body.find(mark)
    for _ in range(_MOST_PARTS):
        if at < 0:
            return
        start = at + len(mark)
        at = body.find(mark, start)
        stop = len(body) if at < 0 else at
        end = body.find(b"\r\n\r\n", start, min(stop, start + _PART_HEAD_BYTES))
        if end >= 0 and _NAMED_MODEL.search(body, start, end + 2):
            name = body[end:stop]
            first = stop - len(name.lstrip())
            yield first, first + len(name.strip())


def _look_at_form(body: bytes, content_type: bytes) -> Look:
    for start, stop in form_models(body, content_type):
        return Look(model=body[start:stop].decode("utf-8", "replace"))
    raise Refused(
        400, f"no model in the form's first {_MOST_PARTS} parts", code="no_model", param="model"
    )


def _from_query(query: bytes) -> str | None:
    if not query:
        return None
    try:
        return parse_qs(query.decode("ascii")).get("model", [None])[0]
    except (UnicodeDecodeError, ValueError):
        return None


def check_path(path: bytes) -> None:
    """Keep callers within the API: an endpoint's other pages, as /v1/../sleep, are not for them.

    Raises:
        Refused: the path has dot segments.
    """
    if b"/." in path and {b".", b".."} & set(path.split(b"/")):
        raise Refused(400, "the path must not have '.' or '..' in it", code="invalid_path")
