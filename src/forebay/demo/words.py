"""The words that the tiny chat model knows, each one token; prompts are made of them too."""

from __future__ import annotations

_TEXT = (
    "water river lake turbine dam gate pool level flow rain snow spring summer autumn winter "
    "morning evening night day week year hour light stone wood bridge road valley mountain city "
    "house garden window door table letter answer question reason number name story song work "
    "hand head heart voice the a and or but if so then now here there when where while because "
    "of to in on at by for with from under over between before after is was has had can will "
    "may must holds gives takes keeps opens closes turns moves waits runs falls rises slow fast "
    "small large old new clear deep quiet strong warm cold first last next more less every some"
)
WORDS = tuple(_TEXT.split())
