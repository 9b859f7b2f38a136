"""Reports every mistake in a command line at once.

Mistakes in the combination of options are reported by the command.
"""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.core import ParameterSource

from iris.cli.parsing.suggestions import alias, did_you_mean

MAY_BE_EMPTY = frozenset({"setup", "reason", "grep"}) | frozenset(
    {"members", "admins", "default_for", "guarantee", "project_limit", "weight"}
)
"""Options to which an empty value says something. To others it is a variable that was not set,
whose option would be left out.
"""


class CliCommand(click.Command):
    """A command that reports all mistakes in its options and arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return _checked(self, ctx, super().parse_args(ctx, args))
        except click.UsageError as first:
            found = {one.format_message(): one for one in _mistakes(self, ctx, given)}
            if len(found) < 2:
                raise
            lines = "\n".join(f"  {message}" for message in found)
            raise click.UsageError(f"{len(found)} mistakes:\n{lines}", first.ctx) from None


class CliGroup(click.Group):
    """A group of such commands, which also takes the words of `suggestions.ALIASES`."""

    command_class = CliCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return _checked(self, ctx, super().parse_args(ctx, args))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, alias(cmd_name, self.commands))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            self.get_command(ctx, args[0]) is None
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            near = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"There is no command {args[0]!r}.{near}", ctx)
        return super().resolve_command(ctx, args)


def _checked(command: click.Command, ctx: click.Context, rest: list[str]) -> list[str]:
    """The ``rest`` of the words. Raises UsageError for an option that was given an empty value."""
    for one in command.params:
        name = one.name or ""
        given = (
            isinstance(one, click.Option)
            and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        )
        if given and ctx.params.get(name) == "" and name not in MAY_BE_EMPTY:
            raise click.UsageError(f"{max(one.opts, key=len)} must not be empty", ctx)
    return rest


def _mistakes(
    command: click.Command, ctx: click.Context, args: list[str]
) -> Iterator[click.UsageError]:
    """Unknown options and options without a value, then missing or invalid values."""
    try:
        values, rest, order = command.make_parser(ctx).parse_args(list(args))
    except (click.NoSuchOption, click.BadOptionUsage) as mistake:
        yield mistake
        without = [word for word in args if word.partition("=")[0] != mistake.option_name]
        if len(without) < len(args):  # it may be grouped with other letters after one dash
            yield from _mistakes(command, ctx, without)
        return
    for parameter in sorted(
        command.get_params(ctx), key=lambda one: order.index(one) if one in order else len(order)
    ):
        try:
            _, rest = parameter.handle_parse_result(ctx, values, rest)
        except click.UsageError as mistake:
            yield mistake
