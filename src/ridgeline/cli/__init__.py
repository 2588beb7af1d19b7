"""The `ridgeline` command: one file per verb, each loaded only when it is called.

Exit status: 0, 1 (the answer is no), 2 (bad input; the message says field, problem, remedy).
"""

import importlib
import sys

import click

import ridgeline
from ridgeline.errors import RidgelineError

#: verb -> (module, what the help says). A module is imported when its verb is called.
VERBS = {
    "plan": ("plan", "Answer a question of capacity or cost, with the working."),
    "simulate": ("simulate", "Say what would happen, in virtual time."),
    "trace": ("trace", "Say what a recorded trace is like: rate, bursts, sizes, reuse."),
    "catalog": ("catalog", "Look up models, accelerators, networks and fault codes."),
    "calibrate": ("calibrate", "Fit the step-time model to measured runs."),
    "check": ("check", "Recompute what is claimed, and say what holds."),
    "up": ("up", "Serve models behind an OpenAI-compatible gateway."),
    "status": ("status", "Show what runs on this machine."),
    "diff": ("diff", "Say what a spec would change in the platform that is up."),
    "reload": ("reload", "Make the platform that is up what a spec says."),
    "models": ("models", "Keep versions of models, named by the hash of what is in them."),
    "rollout": ("rollout", "Move a model to another version, or back."),
    "evaluate": ("evaluate", "Compare a running model's answers with a reference."),
    "why": ("why", "Say why a request went where it went, and where its time was spent."),
    "tenants": ("tenants", "List and change who may ask, with limits and budgets."),
    "keys": ("keys", "Make, list and revoke API keys."),
    "store": ("store", "Back up and restore tenants, keys and the ledger."),
    "cost": ("cost", "Share the hardware's bill among those who used it."),
    "dashboards": ("dashboards", "Write a Grafana dashboard and Prometheus alert rules."),
    "down": ("down", "Drain and stop what `up` started."),
    "serve": ("serve", "Serve one model as a single replica, without a gateway."),
    "fake-replica": ("fake_replica", "Serve made-up words with a real model's timing and faults."),
    "bench": ("bench", "Measure a server under load."),
    "doctor": ("doctor", "Say what is wrong with this installation, and what mends it."),
    "init": ("init", "Write a commented platform.yaml to start from."),
    "schema": ("schema", "Print the JSON schema of platform.yaml, for editors."),
    "systems": ("systems", "List the systems that have to work, and the tests that prove them."),
}

#: Called by Ridgeline itself, not by people.
HIDDEN = ("gateway-worker", "spare")


class Verbs(click.Group):
    """A group that knows its commands' help without importing them, so that help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a verb's module, now that it is called."""
        if cmd_name not in VERBS and cmd_name not in HIDDEN:
            return None
        name = VERBS[cmd_name][0] if cmd_name in VERBS else cmd_name.replace("-", "_")
        module = importlib.import_module(f"ridgeline.cli.{name}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The verbs and their one-line help, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ridgeline.__version__, message="Ridgeline %(version)s")
def ridgeline_command() -> None:
    """Plan, simulate, run and diagnose AI infrastructure.

    Today Ridgeline plans and runs: `ridgeline plan` answers questions of capacity and cost with
    the working of every number, and `ridgeline up` serves a model behind an OpenAI-compatible
    gateway.
    """


def main() -> None:
    """The console script: errors meant for the user are printed without a traceback."""
    try:
        ridgeline_command.main(prog_name="ridgeline", standalone_mode=True)
    except RidgelineError as error:
        sys.stderr.write(f"ridgeline: {error}\n")
        sys.exit(2)
