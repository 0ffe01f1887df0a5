"""The examples, as users run them, against real engines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ("embed_folder.py", "embed_folder_langchain.py", "embed_folder_threads.py")
_MOST_S = 120


def entry(engine, **more) -> dict:
    endpoint = {"base_url": engine.base_url, "gpu_group": "gpu", "max_concurrent_requests": 8}
    return {"id": engine.model, "endpoints": [endpoint], **more}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_folder_is_embedded_while_somebody_chats(
    name, llamacpp_chat, llamacpp_embed, tmp_path
) -> None:
    config, out = tmp_path / "config.json", tmp_path / "out.jsonl"
    config.write_text(
        json.dumps(
            {
                "chat_models": [entry(llamacpp_chat, max_parallel_calls=1)],
                "embedding_models": [entry(llamacpp_embed)],
                "GPU_CONCURRENCY_BUDGETS": {"gpu": 4},
            }
        )
    )
    folder = tmp_path / "texts"
    folder.mkdir()
    texts = [f"text {n}: " + "water that is held back drives the wheel " * 8 for n in range(120)]
    (folder / "a.md").write_text("\n\n".join(texts[:70]))
    (folder / "b.txt").write_text("\n\n".join(texts[70:]))
    (folder / "c.png").write_bytes(b"\x89PNG")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, config, folder, out],
        capture_output=True,
        text=True,
        timeout=_MOST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = re.fullmatch(r"120 passages embedded; (\d+) answers began, .* ms\n", done.stdout)
    assert told, done.stdout
    assert int(told[1]) >= 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["text"] for line in lines) == sorted(text.strip() for text in texts)
    assert {line["file"] for line in lines} == {"a.md", "b.txt"}
    assert all(len(line["vector"]) == 384 for line in lines)
