"""Embed the rows of a table into PostgreSQL (pgvector), and find those nearest to a question.

    python examples/howto/pgvector_ingest.py CONFIG EMBEDDING_MODEL DATABASE QUESTION

DATABASE is a connection string; there, `documents` has the columns `id` and `body`. It may be
stopped at any time: the next run embeds what is missing.
"""

import sys

import psycopg
from pgvector.psycopg import register_vector

import forebay

MISSING = """SELECT id, body FROM documents WHERE NOT EXISTS
             (SELECT FROM vectors WHERE vectors.id = documents.id) ORDER BY id LIMIT 2000"""
COPY = "COPY vectors (id, vector) FROM STDIN WITH (FORMAT BINARY)"
NEAREST = "SELECT body FROM documents JOIN vectors USING (id) ORDER BY vector <=> %s LIMIT 3"


def main(config: str, model: str, database: str, question: str) -> None:
    """Embed, a page of rows at a time, then ask."""
    with forebay.open_sync(config) as fb, psycopg.connect(database, autocommit=True) as db:
        wanted = fb.embed_sync([question], model=model)[0]
        column = f"vector vector({len(wanted)})"
        db.execute("CREATE EXTENSION IF NOT EXISTS vector")
        db.execute(f"CREATE TABLE IF NOT EXISTS vectors (id bigint PRIMARY KEY, {column})")
        register_vector(db)  # after the extension is there

        count = 0
        while rows := db.execute(MISSING).fetchall():
            vectors = fb.embed_sync([body for _, body in rows], model=model)
            with db.cursor().copy(COPY) as copy:
                copy.set_types(["int8", "vector"])
                for (number, _), vector in zip(rows, vectors, strict=True):
                    copy.write_row((number, vector))
            count += len(rows)
        print(f"{count} rows embedded")
        for (body,) in db.execute(NEAREST, [wanted]):
            print(body)


if __name__ == "__main__":
    main(*sys.argv[1:])
