import asyncio
import sys

from openai import AsyncOpenAI

import forebay


async def main(config: str) -> None:
    async with AsyncOpenAI(api_key="-", max_retries=0) as client, forebay.open(config) as fb:

        async def embed(text: str) -> list[float]:
            lease = fb.current_lease()
            there = client.with_options(base_url=lease.endpoint.base_url)
            answer = await there.embeddings.create(model=lease.model, input=text)
            return answer.data[0].embedding

        # One request, with everything at hand.
        async with fb.slot("bge-m3", timeout=30) as lease:
            text = "a question"
            await embed(text)
            lease.work(len(text) / 4)

        # Many: as many at once as the GPU takes now, results in order, failures told.
        texts = (f"document {n}" for n in range(100))
        vectors = await fb.map_concurrent(embed, texts, model="bge-m3", on_error="collect")
        failed = [vector for vector in vectors if isinstance(vector, BaseException)]
        print(f"{len(vectors) - len(failed)} embedded, {len(failed)} failed")


asyncio.run(main(*sys.argv[1:]))
