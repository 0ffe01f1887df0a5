"""OpenAI's own clients, governed in this process.

    python examples/howto/openai_sdk.py CONFIG CHAT_MODEL EMBEDDING_MODEL

First with asyncio, then in threads.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openai import AsyncOpenAI, OpenAI

import forebay

# Nothing listens there: requests stay in this process. Forebay does the retries.
FOREBAY: dict[str, Any] = {"base_url": "http://forebay/v1", "api_key": "-", "max_retries": 0}
QUESTION: Any = [{"role": "user", "content": "What does a forebay hold back?"}]
BATCHES = [[f"document {n}" for n in range(start, start + 16)] for start in range(0, 320, 16)]


async def with_asyncio(config: str, chat_model: str, embedding_model: str) -> None:
    """Ask all at once: Forebay lets through what there is room for."""
    async with (
        forebay.open(config) as fb,
        AsyncOpenAI(http_client=fb.http_client(), **FOREBAY) as client,
    ):
        chat, embed = client.chat.completions.create, client.embeddings.create
        embedding = asyncio.gather(*(embed(model=embedding_model, input=b) for b in BATCHES))
        stream = await chat(model=chat_model, messages=QUESTION, max_tokens=16, stream=True)
        chunks = [chunk async for chunk in stream]
        vectors = [each.embedding for answer in await embedding for each in answer.data]
    print(f"asyncio: {len(vectors)} vectors, an answer in {len(chunks)} chunks")


def with_threads(config: str, chat_model: str, embedding_model: str) -> None:
    """Ask from as many threads as there are batches, and wait in them."""
    with (
        forebay.open_sync(config) as fb,
        OpenAI(http_client=fb.http_client_sync(), **FOREBAY) as client,
        ThreadPoolExecutor(len(BATCHES)) as threads,
    ):
        chat, embed = client.chat.completions.create, client.embeddings.create
        embedding = threads.map(lambda b: embed(model=embedding_model, input=b), BATCHES)
        stream = chat(model=chat_model, messages=QUESTION, max_tokens=16, stream=True)
        chunks = list(stream)
        vectors = [each.embedding for answer in embedding for each in answer.data]
    print(f"threads: {len(vectors)} vectors, an answer in {len(chunks)} chunks")


if __name__ == "__main__":
    asyncio.run(with_asyncio(*sys.argv[1:]))
    with_threads(*sys.argv[1:])
