"""`ridgeline schema`: the JSON schema of platform.yaml."""

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON schema of platform.yaml, for editors that check YAML while one types."""
    from ridgeline.spec import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
