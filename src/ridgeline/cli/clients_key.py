"""The key that clients of a single replica need, where its command line names one."""

import os

from ridgeline.errors import SpecError
from ridgeline.serving.spec import is_loopback


def clients_key(variable: str | None, host: str) -> str | None:
    """What `--api-key-env` points to; None where no key is needed.

    Raises SpecError where the variable is not set, or `--host` is open to the network without one.
    """
    key = os.environ.get(variable) if variable else None
    if variable and not key:
        raise SpecError(f"the environment variable {variable} is not set", where="--api-key-env")
    if not is_loopback(host) and key is None:
        raise SpecError(
            f"{host} is open to the network, so clients need a key",
            where="--host",
            remedy="--api-key-env VARIABLE",
        )
    return key
