"""Where a platform's database is, for the gateway and for the commands that look into it."""

from ridgeline.paths import state_home


def database_url(platform: str, named: str | None) -> str:
    """The URL that platform.yaml names, else that of an SQLite file of the platform's own."""
    return named or f"sqlite:///{state_home() / platform / 'ledger.db'}"
