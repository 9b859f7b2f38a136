"""`sbatch`: submit a script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from iris import Client
from iris_slurm import mail, submission
from iris_slurm.commands.program import run
from iris_slurm.directives import ignored_options, options_of, script_lines
from iris_slurm.numbers import number_of
from iris_slurm.records import code_of, rows_of
from iris_slurm.values import NotHonoured


def main() -> int:
    """The command."""
    return run("sbatch", sbatch)


def sbatch(client: Client, words: list[str]) -> int:
    """Submit a script, of a file, of standard input or of --wrap. Raises NotHonoured,
    ClientError.
    """
    ignored = ignored_options(os.environ)
    quiet = options_of("sbatch", ["--quiet", *words], ignored=ignored)
    script = read_script(quiet.wrap, quiet.words)
    lines = script_lines(os.fsdecode(script))
    given = options_of("sbatch", words, lines, os.environ, ignored)
    settings, options = submission.described(given, given.words)
    mail.add_rules("sbatch", client, given, options)
    if given.test_only:
        print(client.plan(client.spec(submission.BATCH, options)).verdict, file=sys.stderr)
        return 0
    job = submission.submit(client, script, settings, options)
    number = number_of(job.view)
    if not given.quiet:
        print(number if given.parsable else f"Submitted batch job {number}", flush=True)
    return 0 if not given.wait else code_of(rows_of(client, job.wait()))


def read_script(wrap: str | None, words: list[str]) -> bytes:
    """The script, as it is. Raises NotHonoured."""
    if wrap is not None:
        if words:
            raise NotHonoured(f"--wrap is the script: leave out {words[0]}")
        return os.fsencode(f"#!/bin/sh\n{wrap}\n")
    try:
        script = Path(words[0]).read_bytes() if words else sys.stdin.buffer.read()
    except OSError as error:
        raise NotHonoured(f"{words[0]}: {error.strerror}") from None
    if not script.startswith(b"#!"):
        raise NotHonoured("the script has to begin with #!, such as #!/bin/sh")
    return script
