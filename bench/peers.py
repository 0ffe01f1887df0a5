"""The gateways that are compared: how each is installed, and started before the same backend.

Each gets one worker on one core, keep-alive to the backend, no buffering of streams, no access log,
and the cheapest routing it offers. What cannot be installed or started is reported with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from . import proc
from .backend import MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOTS = 2048  # more than any measure has open, so that no gateway queues
_INSTALL_S = 600.0
_ENVIRONMENT = {
    "RUST_LOG": "error",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no download at start
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # no keys on loopback
}


class InstallError(Exception):
    """A peer could not be installed; the message is the installer's last line."""


@dataclass(frozen=True)
class Gateway:
    """One contender.

    Args:
        name: what it is called in tables.
        install: makes it available; returns its version.
        command: how to run it, given its port, the backend's and a folder for its files.
        slow: whether it is given little load, because it would take minutes otherwise.
    """

    name: str
    install: Callable[[], str]
    command: Callable[[int, int, Path], list[str]]
    slow: bool = False

    @contextmanager
    def running(self, backend_port: int, core: int) -> Iterator[tuple[str, int]]:
        """Run it until the block ends; yield its base URL and process id.

        Raises:
            proc.StartError: it did not come up.
        """
        folder = proc.CACHE / "run" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        port = proc.free_port()
        command = self.command(port, backend_port, folder)
        log = folder / "log"
        with proc.running(command, core=core, port=port, log=log, env=_ENVIRONMENT) as pid:
            yield f"http://127.0.0.1:{port}", pid


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise InstallError(f"{' '.join(command[:3])}: {lines[-1]}")


def venv(name: str, requirement: str) -> Path:
    """Return the environment `name` of the bench cache, with the requirement installed."""
    folder = proc.CACHE / name
    done = folder / "installed"
    if not done.exists() or done.read_text() != requirement:
        _run("uv", "venv", "--quiet", "--clear", "--python", "3.11", str(folder))
        _run("uv", "pip", "install", "--quiet", "--python", str(folder), requirement)
        done.write_text(requirement)
    return folder


def _pinned(name: str, requirement: str) -> Callable[[], str]:
    def install() -> str:
        venv(name, requirement)
        return requirement.partition("==")[2]

    return install


def _install_nginx() -> str:
    if shutil.which("nginx") is None:
        if os.geteuid() != 0:
            raise InstallError("nginx is missing: apt-get install nginx-light")
        _run("apt-get", "update")
        _run("apt-get", "install", "--yes", "--no-install-recommends", "nginx-light")
    shown = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True)
    return shown.stderr.rpartition("/")[2].strip()


def _nginx(port: int, backend_port: int, folder: Path) -> list[str]:
    temporary = "".join(
        f"  {kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"""daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections {4 * SLOTS}; }}
http {{
  access_log off;
{temporary}
  keepalive_requests 100000000;
  client_body_buffer_size 1m;
  client_max_body_size 0;
  upstream backend {{
    server 127.0.0.1:{backend_port};
    keepalive {SLOTS};
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
    )
    return ["nginx", "-c", str(config), "-p", str(folder)]


def _smg(port: int, backend_port: int, _: Path) -> list[str]:
    return [
        *(str(proc.CACHE / "smg/bin/smg"), "launch", "--backend", "vllm"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", f"http://127.0.0.1:{backend_port}"),
        *("--policy", "round_robin", "--max-concurrent-requests", str(SLOTS)),
        *("--prometheus-port", str(proc.free_port()), "--log-level", "error"),
        *("--disable-tokenizer-autoload", "--disable-load-monitoring"),
    ]


def _vllm_router(port: int, backend_port: int, _: Path) -> list[str]:
    return [
        str(proc.CACHE / "vllm-router/bin/vllm-router"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", f"http://127.0.0.1:{backend_port}"),
        *("--policy", "round_robin", "--max-concurrent-requests", str(SLOTS)),
        *("--prometheus-port", str(proc.free_port()), "--log-level", "error"),
    ]


def _litellm(port: int, backend_port: int, folder: Path) -> list[str]:
    config = folder / "config.yaml"
    served = {
        "model": f"openai/{MODEL}",
        "api_base": f"http://127.0.0.1:{backend_port}/v1",
        "api_key": "none",
    }
    # JSON is YAML.
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": served}]}))
    return [
        str(proc.CACHE / "litellm/bin/litellm"),
        *("--config", str(config), "--host", "127.0.0.1", "--port", str(port)),
        *("--num_workers", "1"),
    ]


def _aiohttp(port: int, backend_port: int, _: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.aiohttp_proxy"),
        *("--port", str(port), "--backend", f"http://127.0.0.1:{backend_port}"),
    ]


def _forebay(port: int, backend_port: int, folder: Path) -> list[str]:
    config = folder / "config.json"
    model = {
        "id": MODEL,
        "base_url": f"http://127.0.0.1:{backend_port}/v1",
        "gpu_group": "gpu",
        "max_concurrent_requests": SLOTS,
        # The floor is the ceiling: the benchmark compares data paths, not admission at its limit.
        "max_parallel_calls": SLOTS,
    }
    settings = {
        "chat_models": [model],
        "GPU_CONCURRENCY_BUDGETS": {"gpu": SLOTS},
        "MODEL_MAX_CONCURRENCY": SLOTS,
        "forebay": {"limit": "fixed"},
    }
    config.write_text(json.dumps(settings))
    forebay = Path(sys.executable).with_name("forebay")
    return [
        *(str(forebay), "serve", "--config", str(config)),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]


SUBJECT = "forebay"
GATEWAYS = (
    Gateway(SUBJECT, lambda: version("forebay"), _forebay),
    Gateway("nginx", _install_nginx, _nginx),
    Gateway("smg", _pinned("smg", "smg==1.13.0"), _smg),
    Gateway("vllm-router", _pinned("vllm-router", "vllm-router==0.1.17"), _vllm_router),
    Gateway("litellm", _pinned("litellm", "litellm[proxy]==1.106.12"), _litellm, slow=True),
    Gateway("uvicorn+aiohttp", lambda: version("aiohttp"), _aiohttp),
)
