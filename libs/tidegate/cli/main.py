"""The `tidegate` command line. A subcommand's module is imported only when it is called.

Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.
"""

from __future__ import annotations

import importlib

import click

from tidegate.cli.shared import exit_code, remember_json, show_error
from tidegate.contracts.errors import TidegateError
from tidegate.contracts.extras import explained

# name: (module that defines `command`, one-line help). To add a command, add one line here.
COMMANDS = {
    "validate": ("tidegate.cli.operate.validate", "Check a configuration file and report all problems at once."),
    "run": ("tidegate.cli.operate.run", "Run operators in the foreground."),
    "stop": ("tidegate.cli.operate.stop", "Stop running drivers, on whichever machine they run."),
    "status": (
        "tidegate.cli.operate.status",
        "Show offsets, lag, stream time and held records, and what blocks an operator.",
    ),
    "sql": ("tidegate.cli.inspect.sql", "Query operators with Spark SQL, optionally as of an earlier version."),
    "console": ("tidegate.cli.inspect.console", "Show what an application does, in a browser."),
    "explain": ("tidegate.cli.inspect.explain", "Say why a key was emitted, and recompute the emission."),
    "windows": ("tidegate.cli.inspect.windows", "Show the windows that an operator holds, by key and time."),
    "advise": ("tidegate.cli.inspect.advise", "Compare graces: the share of records in time, and the added delay."),
    "conformance": ("tidegate.cli.develop.conformance", "Run recorded scenarios against the operators."),
    "bench": ("tidegate.cli.develop.bench", "Run a benchmark of a source checkout."),
    "plan": ("tidegate.cli.operate.plan", "Preview what a changed file would do to running operators."),
    "apply": ("tidegate.cli.operate.apply", "Apply a changed file to running operators."),
    "compact": ("tidegate.cli.operate.compact", "Write snapshots of the state and merge small files."),
    "flush": ("tidegate.cli.operate.flush", "Emit everything that an operator holds, immediately."),
    "redrive": ("tidegate.cli.repair.redrive", "Send late and rejected records back to the input topic."),
    "skip": ("tidegate.cli.repair.skip", "Continue after records that were deleted before they were read."),
    "rescale": ("tidegate.cli.repair.rescale", "Continue with another number of partitions, with all state."),
    "settle": ("tidegate.cli.repair.settle", "Record whether output was published, if Kafka no longer knows."),
    "doctor": ("tidegate.cli.repair.doctor", "Diagnose problems around an application and suggest fixes."),
    "db": ("tidegate.cli.repair.db", "Manage the control database."),
    "setup": ("tidegate.cli.develop.setup", "Download the jars and compile the kernels, once."),
    "demo": ("tidegate.cli.develop.demo", "Run a year of flights through the operators, and check the results."),
    "kafka": ("tidegate.cli.develop.kafka", "Start and stop the embedded Kafka broker."),
    "topics": ("tidegate.cli.develop.topics", "Create, list and describe topics."),
    "produce": ("tidegate.cli.develop.produce", "Write JSON lines to a topic."),
    "consume": ("tidegate.cli.develop.consume", "Read a topic as JSON lines."),
}


class _Commands(click.Group):
    """A click group that imports a command when it is called and prints Tidegate's errors without a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        remember_json(ctx, args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = importlib.import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            show_error(error)
            ctx.exit(exit_code(error))
        except ModuleNotFoundError as error:
            missing = explained(error)
            if missing is None:
                raise
            show_error(missing)
            ctx.exit(exit_code(missing))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidegate")
def main() -> None:
    """Event-time state for Spark and Delta Lake.

    FILE is a YAML file, or a Python program and the name of its application: app.py:app.

    Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.
    """


if __name__ == "__main__":
    main()
