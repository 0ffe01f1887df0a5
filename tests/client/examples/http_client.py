import asyncio
import sys

from openai import AsyncOpenAI

import forebay


async def main(config: str) -> None:
    async with forebay.open(config) as fb:
        # Each request of this client waits for its slot, and goes where there is room.
        client = AsyncOpenAI(
            base_url="http://forebay/v1",
            api_key="-",
            http_client=fb.http_client(),
            max_retries=0,
        )
        stream = await client.chat.completions.create(
            model="qwen3",
            messages=[{"role": "user", "content": "What is a forebay?"}],
            max_tokens=20,
            stream=True,
        )
        print(len([chunk async for chunk in stream]) > 1)

        # Any number of texts, in the batches that the server takes; beside chat, what is left.
        vectors = await fb.embed((f"document {n}" for n in range(1000)), model="bge-m3")
        print(vectors.shape)


asyncio.run(main(*sys.argv[1:]))
