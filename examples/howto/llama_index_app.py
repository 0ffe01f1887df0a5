"""A small LlamaIndex application, governed in this process.

    python examples/howto/llama_index_app.py CONFIG CHAT_MODEL EMBEDDING_MODEL

It makes an index over some notes, and answers a question about them.
"""

import asyncio
import sys
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

import forebay

NOTES = [f"Note {n}: gate {n} of the forebay opens at {n} metres." for n in range(320)]


def governed(fb: forebay.Session) -> dict[str, Any]:
    """What a model of LlamaIndex is given so that Forebay governs it, with `await` and without."""
    return {
        "api_base": "http://forebay/v1",  # nothing listens there
        "api_key": "-",
        "max_retries": 0,  # Forebay does them
        "timeout": 600,  # the wait for a slot among it
        "http_client": fb.http_client_sync(),
        "async_http_client": fb.http_client(),
    }


def main(config: str, chat_model: str, embedding_model: str) -> None:
    """Embed the notes, all at once, and ask about one of them."""
    with forebay.open_sync(config) as fb:
        embedder = OpenAILikeEmbedding(model_name=embedding_model, **governed(fb))
        llm = OpenAILike(
            model=chat_model, is_chat_model=True, context_window=8192, max_tokens=16, **governed(fb)
        )

        index = VectorStoreIndex.from_documents(
            [Document(text=note) for note in NOTES], embed_model=embedder, use_async=True
        )
        found = index.as_retriever(similarity_top_k=1, embed_model=embedder).retrieve(NOTES[7])
        print(found[0].text)

        answer = asyncio.run(index.as_query_engine(llm=llm).aquery("How high is gate 7?"))
        print(f"an answer of {len(str(answer).split())} words")


if __name__ == "__main__":
    main(*sys.argv[1:])
