"""Embed a folder of text while somebody chats, with one budget for both. The LangChain edition.

    python examples/embed_folder_langchain.py CONFIG FOLDER OUT.jsonl [CHAT_MODEL [EMBEDDING_MODEL]]

See `embed_folder.py`, which does the same without LangChain.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from embed_folder import batches
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import forebay

BATCHES_AT_ONCE = 16  # of which as many run as the GPU bears beside chat


async def embed_all(embeddings: OpenAIEmbeddings, folder: Path, out: Path) -> int:
    """Embed everything; returns the passages. The files are read as their turn comes."""
    count = 0
    todo = batches(folder)
    with out.open("w", encoding="utf-8") as lines:

        async def embed_some() -> None:
            nonlocal count
            for batch in todo:  # which the others take from as well
                vectors = await embeddings.aembed_documents([text for _, text in batch])
                for (file, text), vector in zip(batch, vectors, strict=True):
                    lines.write(json.dumps({"file": file, "text": text, "vector": vector}) + "\n")
                    count += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(BATCHES_AT_ONCE):
                tasks.create_task(embed_some())
    return count


async def chat(llm: ChatOpenAI, waits_s: list[float], stop: asyncio.Event) -> None:
    """Ask one question after another; note how long each waited for its answer."""
    while not stop.is_set():
        asked_at = time.monotonic()
        waits = True
        async for _ in llm.astream("what does a forebay hold back"):
            if waits:
                waits_s.append(time.monotonic() - asked_at)
                waits = False
        await asyncio.sleep(0.2)


async def main(
    config: str, folder: str, out: str, chat_model: str = "tiny", embedder: str = "minilm"
) -> None:
    """Chat until all of the folder is embedded."""
    waits_s: list[float] = []
    async with forebay.open(config) as fb:
        governed: dict[str, Any] = {
            "base_url": "http://forebay/v1",  # nothing listens there
            "api_key": "-",
            "max_retries": 0,  # Forebay does them
            "http_client": fb.http_client_sync(),
            "http_async_client": fb.http_client(),
        }
        llm = ChatOpenAI(model=chat_model, max_completion_tokens=24, **governed)
        embeddings = OpenAIEmbeddings(model=embedder, check_embedding_ctx_length=False, **governed)
        # Not by `cancel`, which LangChain may swallow in the middle of an answer.
        stop = asyncio.Event()
        chatting = asyncio.create_task(chat(llm, waits_s, stop))
        try:
            count = await embed_all(embeddings, Path(folder), Path(out))
        finally:
            stop.set()
            await chatting
    slowest_ms = max(waits_s, default=0) * 1000
    print(f"{count} passages embedded; {len(waits_s)} answers began, within {slowest_ms:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
