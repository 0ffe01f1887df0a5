"""A small LangChain application, governed in this process.

    python examples/howto/langchain_app.py CONFIG CHAT_MODEL EMBEDDING_MODEL

It fills a vector store, answers a question about it, and works in bulk.
"""

import asyncio
import sys
from typing import Any, Literal

from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import forebay

NOTES = [f"Note {n}: gate {n} of the forebay opens at {n} metres." for n in range(320)]


def governed(fb: forebay.Session, priority: Literal["best-effort"] | None = None) -> dict[str, Any]:
    """What a model of LangChain is given so that Forebay governs it, with `await` and without."""
    return {
        "base_url": "http://forebay/v1",  # nothing listens there
        "api_key": "-",
        "max_retries": 0,  # Forebay does them
        "http_client": fb.http_client_sync(priority=priority),
        "http_async_client": fb.http_client(priority=priority),
    }


def main(config: str, chat_model: str, embedding_model: str) -> None:
    """Embed the notes, ask about one, then summarize many while others may chat."""
    with forebay.open_sync(config) as fb:
        embeddings = OpenAIEmbeddings(
            model=embedding_model, check_embedding_ctx_length=False, **governed(fb)
        )
        chat = ChatOpenAI(model=chat_model, max_completion_tokens=16, **governed(fb))
        bulk = ChatOpenAI(
            model=chat_model, max_completion_tokens=16, **governed(fb, priority="best-effort")
        )

        store = InMemoryVectorStore.from_texts(NOTES, embeddings)
        (found,) = store.similarity_search(NOTES[7], k=1)
        print(found.page_content)

        answer = "".join(chunk.text for chunk in chat.stream(f"{found.page_content} How high?"))
        print(f"an answer of {len(answer.split())} words")

        summaries = asyncio.run(bulk.abatch([f"Summarize: {note}" for note in NOTES[:40]]))
        print(f"{len(summaries)} summaries")


if __name__ == "__main__":
    main(*sys.argv[1:])
