"""``python -m forebay``: the same as the ``forebay`` command."""

from forebay.cli import main

main()
