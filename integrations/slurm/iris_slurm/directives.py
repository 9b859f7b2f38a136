"""The table of `#SBATCH` lines, options of `sbatch`, and what each becomes; the manual is drawn
from it.

A directive of no row is refused, like those of `REFUSED`. Out of scope: how values are translated
    (`translate`).
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Never

from iris_slurm.values import NotHonoured

HONOURED: tuple[tuple[str, str, str], ...] = (
    (
        "-J --job-name",
        "NAME",
        "`SLURM_JOB_NAME` and what `squeue` shows; the job in Iris is `NAME-` and six letters",
    ),
    (
        "-o --output",
        "PATTERN",
        "a file on the host of the task, `slurm-%j.out` by default; %A %a %j %J %N %n %t %u %x",
    ),
    ("-e --error", "PATTERN", "likewise; without it the output and the errors are in one file"),
    (
        "--open-mode",
        "append|truncate",
        "whether a further attempt empties these files: `truncate` by default",
    ),
    ("-D --chdir", "DIR", "where the script starts; by default where `sbatch` was run"),
    ("-t --time", "TIME", "`--timeout`, for each task of an array; there is no limit by default"),
    ("-c --cpus-per-task", "N", "`--cpu`, times the tasks on each host"),
    ("-n --ntasks", "N", "the processes that `srun` starts; without `--nodes` all on one host"),
    ("--ntasks-per-node", "N", "those on each host"),
    (
        "-N --nodes",
        "N",
        "a gang of N hosts, on all of which `srun` starts processes; the script runs on the first",
    ),
    ("--mem", "SIZE", "`--memory` of each host; a bare number is MiB"),
    ("--mem-per-cpu", "SIZE", "the same, times the CPUs on each host"),
    ("--tmp", "SIZE", "`--disk` of each host"),
    (
        "--gres",
        "gpu[:KIND][:N]",
        "`--gpu` of each host, in capitals as the hosts name them: `H100x8`",
    ),
    ("-G --gpus", "[KIND:]N", "the same, shared out between the hosts"),
    ("--gpus-per-node", "[KIND:]N", "the same as `--gres`"),
    ("--gpus-per-task", "[KIND:]N", "the same, times the tasks on each host"),
    ("-a --array", "LIST[%N]", "`--array LIST --max-parallel N --keep-going`"),
    (
        "-d --dependency",
        "LIST",
        "`--after`: `afterok`, `afterany`, `afternotok`, `after`, `aftercorr`; `--singleton`",
    ),
    ("-b --begin", "TIME", "`--not-before`: `now+8hours`, `22:00`, `2026-03-01T22:00:00`"),
    ("-H --hold", "", "`--hold`"),
    ("--requeue", "", "the default: lost hosts and preemptions are retried"),
    ("--no-requeue", "", "`--max-retries-preemption 0`"),
    (
        "--signal",
        "[B:]SIG[@S]",
        "`--notice SIG@S`, also before a preemption; `--grace` is as long, 30 s at least",
    ),
    ("--export", "ALL|NONE|LIST", "the variables that the job gets; all by default, as in Slurm"),
    (
        "-p --partition",
        "NAMES",
        "hosts whose attribute `partition` is one of these; `iris`: all hosts, as without it",
    ),
    ("-C --constraint", "A&B", "hosts that have the attributes A and B"),
    ("-w --nodelist", "HOST", "`--constraint hostname=HOST`"),
    ("-x --exclude", "HOSTS", "`--constraint hostname!=HOST` for each"),
    ("-q --qos", "NAME", "`--band` of that name; `high`, `normal` and `low` are the three bands"),
    (
        "-A --account",
        "NAME",
        "label `project`, by which `iris usage --by label` sums; a path, `/research/nlp`: the project",
    ),
    (
        "--mail-type",
        "TYPES",
        "`--notify` of a target of yours: `BEGIN`, `END`, `FAIL`, `ALL`, `TIME_LIMIT_50`, `_80` and `_90`",
    ),
    (
        "--mail-user",
        "ADDRESS",
        "that target, by its address or name; `mail` without it ([how](../design/notifications.md))",
    ),
    ("--comment", "TEXT", "label `comment`"),
    ("--wrap", "COMMAND", "a script of one line"),
    ("--parsable", "", "print the number only"),
    (
        "-W --wait",
        "",
        "return when the job has ended, with its exit code: the highest of an array, 1 for a signal",
    ),
    ("--test-only", "", "`iris plan`: nothing is submitted"),
    ("-Q --quiet", "", "print errors only"),
    (
        "--kill-on-invalid-dep",
        "yes",
        "always so: a job that waits for what cannot happen is killed",
    ),
)
HARMLESS: tuple[tuple[str, str, str], ...] = (
    ("--wckey", "KEY", "not recorded"),
    ("--nice", "N", "jobs of a band keep their order"),
    ("--hint", "TYPE", "processes are not bound to cores"),
    ("-m --distribution", "ORDER", "tasks are numbered host by host"),
    ("--cpu-bind", "TYPE", "processes are not bound to cores"),
    ("--profile", "TYPE", "usage is always recorded"),
    ("--get-user-env", "", "the environment is that of the submission"),
    ("-v --verbose", "", "no more than usual is printed"),
)
"""Accepted with a warning: what they ask for is not done, and the job is right without it."""
REFUSED: tuple[tuple[str, str], ...] = (
    ("--exclusive", "hosts are shared; ask for all cores of a host with --cpus-per-task"),
    (
        "-s --oversubscribe",
        "tasks share hosts, and --cpus-per-task is a share and not a limit: leave it out",
    ),
    ("-M --clusters", "a context of Iris names another cluster: set IRIS_CONTEXT"),
    ("-L --licenses", "there are no licences"),
    ("--reservation", "there are no reservations"),
    ("--switches", "gangs are placed by levels: use iris run --group-by"),
    ("-B --extra-node-info", "processes are not bound to sockets or cores"),
    ("--mem-per-gpu", "say how much memory each host needs: --mem"),
    ("--cpus-per-gpu", "say how many cores a task needs: --cpus-per-task"),
    ("--uid", "a job is of who submits it"),
    ("--gid", "a job is of who submits it"),
    ("-i --input", "a script reads no input; redirect that of its commands"),
    ("--array-inx", "use --array"),
    ("--container", "use iris run --image"),
    ("--power", "there is no power management"),
)
"""NotHonoured with a reason of their own."""


SUBMIT = ("sbatch", "srun", "salloc")
"""The commands that take directives."""


class Parser(argparse.ArgumentParser):
    """Raises `NotHonoured` instead of ending the process."""

    def __init__(self, program: str, usage: str = "") -> None:
        super().__init__(prog=program, usage=usage or None, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> Never:
        if message.startswith("unrecognized arguments"):
            message = f"{message.partition(': ')[2].split()[0]} is not known to iris-slurm, and is not ignored"
        raise NotHonoured(message)


def parser(program: str) -> Parser:
    """Of the options of `sbatch`, which are those of `srun` and `salloc` too, and of the words
    after them.
    """
    found = Parser(program)
    for flags, metavar, _ in (*HONOURED, *HARMLESS):
        if metavar:
            found.add_argument(*flags.split())
        else:
            answer = "no" if flags.startswith("--no-") else "yes"
            found.add_argument(*flags.split(), dest=dest(flags), action="store_const", const=answer)
    for flags, _ in REFUSED:
        found.add_argument(*flags.split(), nargs="?", const="")
    found.add_argument("words", nargs=argparse.REMAINDER, default=[])
    return found


def options_of(
    program: str,
    words: Iterable[str],
    script: Iterable[str] = (),
    environ: Mapping[str, str] = {},
    ignored: Mapping[str, bool] = {},
) -> argparse.Namespace:
    """The options of a command line, of `SBATCH_` variables and of a script, the former before the
    latter.

    Raises NotHonoured for directives that are not honoured; warns of harmless ones, and of those
    that the site ignores.
    """
    reader = parser(program)
    of_script, *dropped = without(script, ignored)
    found = reader.parse_args(of_script)
    if found.words:
        raise NotHonoured(f"#SBATCH {shlex.join(found.words)}: not an option")
    named, warnings = variables(environ, ignored)
    for given in (named, words):
        kept, *more = without(given, ignored)
        reader.parse_args(kept, found)
        dropped += more
    warnings += [ignored_warning(flag) for flag in dict.fromkeys(chain(*dropped))]
    for warning in warnings if not found.quiet else ():
        print(f"{program}: warning: {warning}", file=sys.stderr)
    for flags, reason in REFUSED:
        if getattr(found, dest(flags)) is not None:
            raise NotHonoured(f"{flags.split()[-1]} is refused: {reason}")
    for flags, _, note in HARMLESS:
        if getattr(found, dest(flags)) is not None and not found.quiet:
            print(f"{program}: warning: {flags.split()[-1]} has no effect: {note}", file=sys.stderr)
    return found


def dest(flags: str) -> str:
    """The attribute of an option; ``--no-requeue`` is an answer to ``--requeue``."""
    return flags.split()[-1].removeprefix("--").removeprefix("no-").replace("-", "_")


IGNORE = "IRIS_SLURM_IGNORE"
"""The variable by which a site names options that are ignored with a warning."""


def ignored_options(environ: Mapping[str, str]) -> dict[str, bool]:
    """The options that the site ignores, by all their names, and whether each takes a value:
    ``--exclusive,--gpu-bind=``. Raises NotHonoured.
    """
    found: dict[str, bool] = {}
    rows = [*HONOURED, *HARMLESS, *REFUSED]
    for word in environ.get(IGNORE, "").replace(",", " ").split():
        flag, equals, text = word.partition("=")
        if not re.fullmatch(r"--[a-z][a-z-]*|-[A-Za-z]", flag) or text:
            raise NotHonoured(
                f"{IGNORE}: {word} is no option; write for example --exclusive,--gpu-bind= (with = "
                "behind one that takes a value)"
            )
        names = next((row[0].split() for row in rows if flag in row[0].split()), [flag])
        found |= dict.fromkeys(names, bool(equals) or flag in takes_value())
    return found


def ignored_warning(flag: str) -> str:
    return f"{flag} is ignored: {IGNORE} names it"


def takes_value() -> set[str]:
    """The options with a value, by all their names."""
    rows = [(flags, metavar) for flags, metavar, _ in (*HONOURED, *HARMLESS)]
    return {flag for flags, metavar in rows if metavar for flag in flags.split()}


def without(words: Iterable[str], ignored: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """The words without the options that are ignored, and the names of these; what is behind the
    first word that is no option belongs to a script.
    """
    kept, dropped, rest = list[str](), list[str](), list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        flag = rest[0].partition("=")[0] if rest[0].startswith("--") else rest[0][:2]
        alone = rest[0] == flag
        with_value = ignored[flag] if flag in ignored else flag in takes_value()
        count = 2 if alone and with_value else 1
        if flag in ignored:
            dropped.append(flag)
        else:
            kept += rest[:count]
        rest = rest[count:]
    return kept + rest, dropped


_OTHERWISE = {
    "timelimit": "time",
    "mem-per-node": "mem",
    "array-inx": "array",
    "req-switch": "switches",
    "debug": "verbose",
}
_OF_SLURM = frozenset(
    {
        "acctg-freq",
        "batch",
        "container-id",
        "core-spec",
        "delay-boot",
        "gpu-bind",
        "gpu-freq",
        "gres-flags",
        "ignore-pbs",
        "mem-bind",
        "network",
        "no-kill",
        "overcommit",
        "spread-job",
        "thread-spec",
        "tres-bind",
        "tres-per-task",
        "use-min-nodes",
        "wait-all-nodes",
        "wait4switch",
    }
)
"""Further ones that Slurm reads."""


def variables(
    environ: Mapping[str, str], ignored: Mapping[str, bool] = {}
) -> tuple[list[str], list[str]]:
    """The variables that `sbatch` reads, as options: ``SBATCH_PARTITION=gpu`` is
    ``--partition=gpu``; and warnings of those that have no meaning. Raises NotHonoured.
    """
    words, warnings = list[str](), list[str]()
    flags = {flag for row in (*HONOURED, *HARMLESS, *REFUSED) for flag in row[0].split()}
    bare = {
        flag
        for flags, metavar, _ in (*HONOURED, *HARMLESS)
        if not metavar
        for flag in flags.split()
    }
    for name in sorted(environ):
        if not name.startswith("SBATCH_"):
            continue
        option = name.removeprefix("SBATCH_").lower().replace("_", "-")
        flag = f"--{_OTHERWISE.get(option, option)}"
        if flag in ignored:
            warnings.append(f"{name}: {ignored_warning(flag)}")
        elif flag in bare:
            words.append(flag)
        elif flag in flags:
            words.append(f"{flag}={environ[name]}")
        elif option in _OF_SLURM:
            raise NotHonoured(
                f"{name}={environ[name]}: {flag} is not known to iris-slurm; unset it"
            )
        else:
            warnings.append(f"{name} has no effect: it is no variable of sbatch")
    return words, warnings


def script_lines(script: str) -> list[str]:
    """The words of its `#SBATCH` lines, which stand before its first command. Raises
    NotHonoured.
    """
    words: list[str] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith("#SBATCH"):
            try:
                words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise NotHonoured(f"line {number} of the script: {error}: {line}") from None
        elif line.strip() and not line.startswith("#"):
            break
    return words


def table_row(flags: str, *rest: str) -> str:
    """A row of the manual, of a row of a table above."""
    metavar, note = rest if len(rest) == 2 else ("", rest[0])
    shown = ", ".join(f"`{flag}`" for flag in flags.split()[:-1]) + (", " if " " in flags else "")
    words = f"{shown}`{flags.split()[-1]}{f'={metavar}' if metavar else ''}`"
    return f"| {words.replace('|', chr(92) + '|')} | {note} |"


def help_of(program: str) -> str:
    """What a command takes; of those that submit, with what becomes of each option."""
    lines = [
        f"{program} of iris-slurm takes a part of the options of Slurm's {program}, and refuses every other one."
    ]
    if program in SUBMIT:
        width = max(len(flags) + len(metavar) for flags, metavar, _ in HONOURED) + 3
        lines += [f"  {f'{flags} {metavar}':{width}}{note}" for flags, metavar, note in HONOURED]
    return "\n".join([*lines, "All of it: docs/howto/slurm-commands.md of Iris."])
