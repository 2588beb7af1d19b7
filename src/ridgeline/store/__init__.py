"""Durable state: SQL, in one SQLite file or in PostgreSQL by URL.

Law of this room: it knows tables, rows and transactions, and nothing of what they mean. Rows are
only ever added to `entries` and `audit`. Called by the rooms that keep something, and by the
command line for backups.
"""
