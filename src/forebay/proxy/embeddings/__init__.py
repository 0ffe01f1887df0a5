"""``POST /v1/embeddings``: any batch to any server, and never a vector at the wrong text.

Theory of operation. A request is read once (`inputs`), and refused before it takes a slot if no
server could make sense of it. Then it goes through admission in *pieces* (`pieces`), each as large
as the endpoint that it got takes (`known`), or as others may have to wait for; mostly that is all
of it, and then it goes out as it came. What is refused may come again, smaller or elsewhere
(`inquiry`, `remaining`). An endpoint's first vectors are compared with the model's own (`guard`),
lest those of another model are taken for them. Every answer is held until it is whole and has been
checked (`answers`), since a vector too few cannot be seen by who reads them by position. An answer
that needs nothing is passed on byte for byte; several are merged, and an encoding that was not
asked for is converted (`vectors`).
"""

from __future__ import annotations

from forebay.proxy.embeddings.handler import EmbeddingsHandler

__all__ = ["EmbeddingsHandler"]
