"""A Celery worker whose threads share one session.

    export REDIS=redis://localhost FOREBAY_CONFIG=config.json
    celery --workdir examples/howto --app celery_worker worker --pool threads --concurrency 16
    python examples/howto/celery_worker.py EMBEDDING_MODEL

The last command gives the worker something to do, and may run elsewhere.
"""

import os
import sys

from celery import Celery, group
from celery.signals import worker_init, worker_shutdown

import forebay

app = Celery("celery_worker", broker=os.environ["REDIS"], backend=os.environ["REDIS"])
sessions: list[forebay.Session] = []


@worker_init.connect  # once, in the process whose threads run the tasks
def open_session(**_: object) -> None:
    """Open the session, by FOREBAY_CONFIG."""
    sessions.append(forebay.open_sync())


@worker_shutdown.connect
def close_session(**_: object) -> None:
    """Close it, when the last task has ended."""
    sessions.pop().close()


@app.task
def embed(texts: list[str], model: str) -> list[list[float]]:
    """Embed some texts."""
    (fb,) = sessions
    return fb.embed_sync(texts, model=model).tolist()


def main(model: str) -> None:
    """Give the worker twenty tasks, and wait for their results."""
    batches = [[f"document {n}" for n in range(start, start + 16)] for start in range(0, 320, 16)]
    results = group(embed.s(batch, model) for batch in batches)().get(timeout=60)
    print(f"{sum(map(len, results))} texts embedded by {len(results)} tasks")


if __name__ == "__main__":
    main(*sys.argv[1:])
