"""Alembic's entry: runs the steps on the connection, and in the transaction, that it is given.

Loaded by path from `store/migrate.py`; nobody imports it.
"""

from alembic import context

from ridgeline.store.migrate import VERSION_TABLE
from ridgeline.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite changes a table by making it anew
)
context.run_migrations()
