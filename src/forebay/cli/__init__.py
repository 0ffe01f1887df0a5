"""The ``forebay`` command.

Each command is one module of this package, and one function in it that has the module's name; its
docstring is its help. Modules that begin with an underscore are not commands. A command loads what
it needs when it is called: the others would wait for it in vain.
"""

import sys

from forebay.cli._ctrl_c import end_at_once


def main() -> None:
    """Run the command line."""
    end_at_once()
    # Not at the top: Ctrl-C must find the way out before anything large is loaded.
    try:
        from forebay.cli._app import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forebay"):
            raise
        sys.exit(
            f"error: the command line needs {error.name}, which is not installed: "
            "pip install 'forebay[gateway]'"
        )
    run()
