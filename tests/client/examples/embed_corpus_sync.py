import sys

from openai import OpenAI

import forebay


def main(config: str) -> None:
    with OpenAI(api_key="-", max_retries=0) as client, forebay.open_sync(config) as fb:

        def embed(text: str) -> list[float]:
            lease = fb.current_lease()
            there = client.with_options(base_url=lease.endpoint.base_url)
            return there.embeddings.create(model=lease.model, input=text).data[0].embedding

        with fb.slot("bge-m3", timeout=30):
            embed("a question")

        texts = (f"document {n}" for n in range(100))
        for vector in fb.stream_sync(embed, texts, model="bge-m3"):
            print(len(vector))


main(*sys.argv[1:])
