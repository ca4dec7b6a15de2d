"""The security settings of a file: stores are opened here, once, and what they hold goes on as values."""

from __future__ import annotations

from mirrormaker.settings.file import File
from mirrormaker.settings.login import LoginFiles, sasl
from mirrormaker.wire.security import Security


def security(file: File, logins: LoginFiles) -> Security:
    """What the file says; without SASL its logins are not looked at."""
    protocol = file.text("security.protocol")
    return Security(protocol, sasl=sasl(file, logins) if protocol.startswith("SASL") else None)
