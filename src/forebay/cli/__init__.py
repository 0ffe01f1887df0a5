"""The ``forebay`` command.

Each command is one module of this package, and one function in it that has the module's name; its
docstring is its help. Modules that begin with an underscore are not commands. A command loads what
it needs when it is called: the others would wait for it in vain.
"""

from forebay.cli._ctrl_c import end_at_once


def main() -> None:
    """Run the command line."""
    end_at_once()
    # Not at the top: Ctrl-C must find the way out before anything large is loaded.
    from forebay.cli._app import run  # noqa: PLC0415

    run()
