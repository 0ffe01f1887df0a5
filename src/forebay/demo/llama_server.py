"""llama.cpp's own HTTP server: `python -m forebay.demo.llama_server --help`.

Prints `listening on http://HOST:PORT` once it serves. Metrics, slots and props are on.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import xllamacpp


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    options = _parser().parse_args()
    if options.cpus is not None and sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cpus])
    stop = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server's threads exist, so that they inherit it and `sigwait` gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(_params(options))
    announce(server.listening_address)
    signal.sigwait(stop)


def announce(address: str) -> None:
    """Say that it serves, on a line of its own.

    llama.cpp logs from threads of its own, piece by piece, and may be within a line. So both ends
    of this one go out in one write.
    """
    sys.stdout.write(f"\nlistening on {address}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m forebay.demo.llama_server", description="llama.cpp's server"
    )
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", required=True, help="model id that it serves")
    parser.add_argument("--host", default="127.0.0.1", help="address; default: loopback only")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--slots", type=int, default=8, help="requests computed at once")
    parser.add_argument("--slot-context", type=int, default=1024, help="tokens a slot holds")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--cpus", type=int, help="keep to the first so many; default: no limit")
    parser.add_argument("--embeddings", action="store_true", help="serve mean-pooled embeddings")
    return parser


def _params(options: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.slot_context
    params.fit_params = False
    params.cache_ram_mib = 0  # prompts are not asked twice: no copies of their state in memory
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.endpoint_props = True
    params.ui = False
    params.verbosity = 2  # warnings and errors
    if options.embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return params


if __name__ == "__main__":
    main()
