"""Embed a folder of text while somebody chats, with one budget for both. The asyncio edition.

    python examples/embed_folder.py CONFIG FOLDER OUT.jsonl [CHAT_MODEL [EMBEDDING_MODEL]]

Every passage of the folder's .md and .txt files becomes a line of OUT: file, text and vector.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from openai import AsyncOpenAI

import forebay

Passage = tuple[str, str]  # file and text
TEXTS_A_REQUEST = 4


def batches(folder: Path) -> Iterator[list[Passage]]:
    """Passages as they are read; the whole folder is never in memory."""
    batch: list[Passage] = []
    for file in sorted(folder.rglob("*")):
        if file.suffix not in {".md", ".txt"}:
            continue
        for text in file.read_text("utf-8").split("\n\n"):
            if text.strip():
                batch.append((str(file.relative_to(folder)), text.strip()[:1000]))
            if len(batch) == TEXTS_A_REQUEST:
                yield batch
                batch = []
    if batch:
        yield batch


async def embed_all(
    fb: forebay.Session, client: AsyncOpenAI, model: str, folder: Path, out: Path
) -> int:
    """Embed everything, at the pace that the GPU bears beside chat; returns the passages."""

    async def embed(batch: list[Passage]) -> list[list[float]]:
        lease = fb.current_lease()
        there = client.with_options(base_url=lease.endpoint.base_url)
        answer = await there.embeddings.create(model=lease.model, input=[text for _, text in batch])
        return [each.embedding for each in answer.data]

    count = 0
    done = fb.as_completed(
        embed,
        batches(folder),
        model=model,
        size=lambda batch: sum(len(text) for _, text in batch) / 4,
        retry=forebay.Retry(attempts=3),
    )
    with out.open("w", encoding="utf-8") as lines:
        async for batch, vectors in done:
            for (file, text), vector in zip(batch, vectors, strict=True):
                lines.write(json.dumps({"file": file, "text": text, "vector": vector}) + "\n")
                count += 1
    return count


async def chat(fb: forebay.Session, client: AsyncOpenAI, model: str, waits_s: list[float]) -> None:
    """Ask one question after another, until cancelled; note how long each waited for its answer."""
    while True:
        asked_at = time.monotonic()
        question = "what does a forebay hold back"
        async with fb.slot(model) as lease:
            there = client.with_options(base_url=lease.endpoint.base_url)
            stream = await there.chat.completions.create(
                model=lease.model,
                messages=[{"role": "user", "content": question}],
                max_tokens=24,
                stream=True,
            )
            tokens = 0
            async for _ in stream:
                if not tokens:
                    lease.first_token(len(question) / 4)
                    waits_s.append(time.monotonic() - asked_at)
                tokens += 1
            lease.work(tokens)
        await asyncio.sleep(0.2)


async def main(
    config: str, folder: str, out: str, chat_model: str = "tiny", embedder: str = "minilm"
) -> None:
    """Chat until all of the folder is embedded."""
    waits_s: list[float] = []
    async with AsyncOpenAI(api_key="-", max_retries=0) as client, forebay.open(config) as fb:
        chatting = asyncio.create_task(chat(fb, client, chat_model, waits_s))
        count = await embed_all(fb, client, embedder, Path(folder), Path(out))
        chatting.cancel()
        with suppress(asyncio.CancelledError):
            await chatting
    slowest_ms = max(waits_s, default=0) * 1000
    print(f"{count} passages embedded; {len(waits_s)} answers began, within {slowest_ms:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
