"""TLS to an endpoint."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def tls_context(
    *,
    ca_file: Path | None = None,
    client_cert: Path | None = None,
    client_key: Path | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """Make a context for `UpstreamSettings.tls`; reads the files now, so not on a hot path.

    Args:
        ca_file: PEM of the authorities to trust in place of the system's.
        client_cert: PEM of the certificate to show, with its chain; may hold the key as well.
        client_key: PEM of its key, not encrypted, when that is a file of its own.
        verify: False trusts any server, for test rigs.

    Raises:
        ConfigError: a file that cannot be read or holds something else.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"CA file {str(ca_file)!r}: {_why(error)}") from error
    if client_cert is not None:
        try:
            # Without a password here OpenSSL would ask for one on the terminal.
            context.load_cert_chain(client_cert, client_key, password="")
        except OSError as error:
            files = " with key ".join(repr(str(p)) for p in (client_cert, client_key) if p)
            raise ConfigError(f"client certificate {files}: {_why(error)}") from error
    elif client_key is not None:
        raise ConfigError(f"client key {str(client_key)!r}: needs a client certificate with it")
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
