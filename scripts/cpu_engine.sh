# Sourced by the scripts that install an engine for CPUs: a folder of its own, with an empty
# environment in it. Ends the script if that version is there already.
#
# usage: cpu_engine NAME VERSION [FOLDER]; sets folder, python and done_mark, and goes to the folder
#
# The CPU build of torch comes from UV_FIND_LINKS (or PIP_FIND_LINKS), a folder or page of wheels,
# if that is set; else from where uv knows to find it.
cpu_engine() {
  folder=$(realpath -m "${3:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay/$1}")
  python="$folder/bin/python"
  done_mark="$folder/installed-$2"
  [ -e "$done_mark" ] && exit 0

  export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
  [ -n "$UV_FIND_LINKS" ] || export UV_TORCH_BACKEND=cpu

  uv venv --quiet --clear --python 3.11 "$folder"
  cd "$folder" # away from this project's own settings of uv
}
