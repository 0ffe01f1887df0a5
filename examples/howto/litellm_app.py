"""LiteLLM's calls, governed in this process.

python examples/howto/litellm_app.py CONFIG CHAT_MODEL EMBEDDING_MODEL
"""

import asyncio
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import fetches a price list

import litellm
from openai import AsyncOpenAI

import forebay

NOTES = [f"Note {n}: gate {n} of the forebay opens at {n} metres." for n in range(320)]


async def main(config: str, chat_model: str, embedding_model: str) -> None:
    """Embed some notes while answering a question."""
    async with forebay.open(config) as fb:
        client = AsyncOpenAI(
            base_url="http://forebay/v1",  # nothing listens there
            api_key="-",
            max_retries=0,  # Forebay does them
            http_client=fb.http_client(),
        )
        governed: dict[str, Any] = {"client": client, "max_retries": 0}
        question: Any = [{"role": "user", "content": "How high is gate 7?"}]
        batches = [NOTES[start : start + 16] for start in range(0, len(NOTES), 16)]
        embedding = asyncio.gather(
            *(
                litellm.aembedding(model=f"openai/{embedding_model}", input=batch, **governed)
                for batch in batches
            )
        )
        answer = await litellm.acompletion(
            model=f"openai/{chat_model}", messages=question, max_tokens=16, **governed
        )
        print(f"an answer of {len(answer.choices[0].message.content.split())} words")
        print(f"{sum(len(each.data) for each in await embedding)} notes embedded")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
