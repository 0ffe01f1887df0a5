"""What resolving finds: refusals and warnings, collected so that all are shown at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.config.problems import InvalidConfig

if TYPE_CHECKING:
    from forebay.config.problems import ConfigWarning, Document, KeyPath, Problem


class Findings:
    """Collects what is wrong with a document, and what is probably not meant."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.warnings: list[ConfigWarning] = []

    def refuse(self, path: KeyPath, message: str, *, show: bool = False) -> None:
        """Note what must not start; `show` adds the value at `path`."""
        shown = self.document.shown(path) if show else ""
        self.problems.append(
            self.document.problem(path, f"{message} ({shown})" if shown else message)
        )

    def warn(self, code: str, path: KeyPath, message: str) -> None:
        """Note what is probably not meant; once, however many servers it is found for."""
        warning = self.document.warning(code, path, message)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def raise_if_refused(self) -> None:
        """Raise `InvalidConfig` if anything was refused."""
        if self.problems:
            raise InvalidConfig(self.problems)
