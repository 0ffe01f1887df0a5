"""The how-tos, as users run them, against an emulated host; Redis and PostgreSQL are real."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import psycopg
import pytest

from forebay.demo.processes import ChildProcess
from support.databases import postgres, redis_server

pytestmark = pytest.mark.anyio

HOWTO = Path(__file__).parents[2] / "examples" / "howto"
PAGE = (Path(__file__).parents[2] / "docs" / "howto.md").read_text("utf-8")


@pytest.mark.parametrize("file", sorted(HOWTO.glob("*.py")), ids=lambda file: file.name)
def test_the_page_shows_it(file) -> None:
    assert f"```python\n{file.read_text('utf-8')}```" in PAGE


async def test_openai_sdk(run, host, config) -> None:
    told = await run("openai_sdk.py", config, "chat", "embedding")
    told_of = [line.split(":")[0] for line in told.splitlines()]
    assert told_of == ["asyncio", "threads"]
    assert told.count("320 vectors, an answer in 17 chunks") == 2
    assert host.record()["embedding"]["max_inflight"] == 4


async def test_langchain(run, host, config) -> None:
    told = await run("langchain_app.py", config, "chat", "embedding")
    assert told.splitlines() == [
        "Note 7: gate 7 of the forebay opens at 7 metres.",
        "an answer of 16 words",
        "40 summaries",
    ]
    record = host.record()
    assert record["embedding"]["max_inflight"] == 4
    # Summaries leave chat's floor free for somebody else.
    assert record["chat"]["max_inflight"] == 4


async def test_pgvector(run, host, config, tmp_path) -> None:
    with postgres(tmp_path) as database:
        with psycopg.connect(database) as db:
            db.execute("CREATE TABLE documents (id bigint PRIMARY KEY, body text)")
            db.execute(
                "INSERT INTO documents SELECT n, 'document ' || n FROM generate_series(1, 2500) n"
            )
        ask = ("pgvector_ingest.py", config, "embedding", database, "document 7")
        first = (await run(*ask)).splitlines()
        assert first[:2] == ["2500 rows embedded", "document 7"]
        with psycopg.connect(database) as db:
            db.execute("DELETE FROM vectors WHERE id > 2400")
        assert (await run(*ask)).splitlines() == ["100 rows embedded", *first[1:]]
    assert host.record()["embedding"]["max_inflight"] == 4


async def test_celery(run, host, config, tmp_path) -> None:
    with redis_server(tmp_path) as socket:
        command = [
            sys.executable,
            "-m",
            "celery",
            "--workdir",
            str(HOWTO),
            "--app",
            "celery_worker",
        ]
        command += ["worker", "--pool", "threads", "--concurrency", "16", "--loglevel", "INFO"]
        told = {"REDIS": f"redis+socket://{socket}"}
        log = tmp_path / "worker.log"
        worker = ChildProcess("worker", command, log, {**told, "FOREBAY_CONFIG": str(config)})
        try:
            await anyio.to_thread.run_sync(worker.await_line, r".* (ready)\.")
            printed = await run("celery_worker.py", "embedding", quiet=False, **told)
        finally:
            await anyio.to_thread.run_sync(worker.stop)
    assert printed == "320 texts embedded by 20 tasks\n"
    assert host.record()["embedding"]["max_inflight"] == 4
    assert log.read_text().count("succeeded") == 20
    assert "Traceback" not in log.read_text()
