"""Roughly how many tokens a request makes an engine read, from its body alone: nothing is decoded.

Requests for embeddings are looked into more closely: see `forebay.proxy.embeddings.inputs`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forebay.proxy.look import is_form

if TYPE_CHECKING:
    from forebay.proxy.message import Request

# English text has about four characters a token, and so has most other text in bytes of UTF-8.
TOKEN_BYTES = 4
# Images and audio in base64, as chat requests carry them: they are no text of that length.
_MEDIA = re.compile(rb'"(?:data:[\w/.+-]{1,100};base64,|data"\s*:\s*")[^"]*')


def tokens_of(request: Request, body: bytes) -> int:
    """Tokens in a request's body; 0 for a form, which holds a file."""
    if is_form(request):
        return 0
    media = sum(match.end() - match.start() for match in _MEDIA.finditer(body))
    return (len(body) - media) // TOKEN_BYTES
