"""Embed the lines of a text file with Ray Data.

    python examples/howto/ray_data.py CONFIG EMBEDDING_MODEL FILE OUT_FOLDER

One actor has one session, and embeds many batches at once.
"""

import sys
from typing import Any

import ray

import forebay


class Embed:
    """The actor: its session governs all that its threads send.

    Args:
        config: Forebay's configuration file, there where the actor runs.
        model: the embedding model's id.
    """

    def __init__(self, config: str, model: str) -> None:
        self._fb = forebay.open_sync(config)
        self._model = model

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Add the vectors of a batch."""
        vectors = self._fb.embed_sync(batch["text"].tolist(), model=self._model)
        return {**batch, "vector": vectors}


def main(config: str, model: str, file: str, out: str) -> None:
    """Embed the file into a folder of Parquet files."""
    one_actor = ray.data.ActorPoolStrategy(
        size=1, max_concurrent_calls_per_actor=8, enable_true_multi_threading=True
    )
    lines = ray.data.read_text(file)
    embedded = lines.map_batches(
        Embed, fn_constructor_args=(config, model), batch_size=64, compute=one_actor
    )
    embedded.write_parquet(out)
    rows = ray.data.read_parquet(out)
    print(f"{rows.count()} lines embedded")


if __name__ == "__main__":
    main(*sys.argv[1:])
