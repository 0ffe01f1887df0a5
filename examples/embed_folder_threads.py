"""Embed a folder of text while somebody chats, with one budget for both. The edition for threads.

    python examples/embed_folder_threads.py CONFIG FOLDER OUT.jsonl [CHAT_MODEL [EMBEDDING_MODEL]]

See `embed_folder.py`, which does the same with asyncio.
"""

import json
import sys
import threading
import time
from pathlib import Path

from embed_folder import Passage, batches
from openai import OpenAI

import forebay


def embed_all(fb: forebay.Session, client: OpenAI, model: str, folder: Path, out: Path) -> int:
    """Embed everything, at the pace that the GPU bears beside chat; returns the passages."""

    def embed(batch: list[Passage]) -> list[list[float]]:
        lease = fb.current_lease()
        there = client.with_options(base_url=lease.endpoint.base_url)
        answer = there.embeddings.create(model=lease.model, input=[text for _, text in batch])
        return [each.embedding for each in answer.data]

    count = 0
    done = fb.as_completed_sync(
        embed,
        batches(folder),
        model=model,
        size=lambda batch: sum(len(text) for _, text in batch) / 4,
        retry=forebay.Retry(attempts=3),
    )
    with out.open("w", encoding="utf-8") as lines:
        for batch, vectors in done:
            for (file, text), vector in zip(batch, vectors, strict=True):
                lines.write(json.dumps({"file": file, "text": text, "vector": vector}) + "\n")
                count += 1
    return count


def chat(
    fb: forebay.Session, client: OpenAI, model: str, waits_s: list[float], stop: threading.Event
) -> None:
    """Ask one question after another; note how long each waited for its answer."""
    while not stop.wait(0.2):
        asked_at = time.monotonic()
        question = "what does a forebay hold back"
        with fb.slot(model) as lease:
            there = client.with_options(base_url=lease.endpoint.base_url)
            stream = there.chat.completions.create(
                model=lease.model,
                messages=[{"role": "user", "content": question}],
                max_tokens=24,
                stream=True,
            )
            tokens = 0
            for _ in stream:
                if not tokens:
                    lease.first_token(len(question) / 4)
                    waits_s.append(time.monotonic() - asked_at)
                tokens += 1
            lease.work(tokens)


def main(
    config: str, folder: str, out: str, chat_model: str = "tiny", embedder: str = "minilm"
) -> None:
    """Chat until all of the folder is embedded."""
    waits_s: list[float] = []
    stop = threading.Event()
    with OpenAI(api_key="-", max_retries=0) as client, forebay.open_sync(config) as fb:
        chatting = threading.Thread(target=chat, args=(fb, client, chat_model, waits_s, stop))
        chatting.start()
        try:
            count = embed_all(fb, client, embedder, Path(folder), Path(out))
        finally:
            stop.set()
            chatting.join()
    slowest_ms = max(waits_s, default=0) * 1000
    print(f"{count} passages embedded; {len(waits_s)} answers began, within {slowest_ms:.0f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
