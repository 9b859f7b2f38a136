"""``python -m iris_state.admin``: verify, repair, backup, restore and streams as a process; `iris
admin` starts it.

Exits with 0 when data is intact or was repaired, 65 when it is damaged, 1 when the command failed,
2 for wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from iris_bus.connection.keys import write_private
from iris_bus.contract import DamagedCommit, Full, Unavailable
from iris_core import subjects
from iris_core.errors import InvariantBroken
from iris_core.units import counted
from iris_service import log_lines
from iris_service.child import DAMAGED, MISUSED, StartFailed
from iris_service.lock import DirectoryInUse
from iris_service.process_settings import NatsSettings
from iris_service.run import FAILED, OK, read_settings
from iris_service.settings import BadSetting
from iris_state.admin import backup, words
from iris_state.admin.archive import BadArchive, DamagedArchive, Item, Writer
from iris_state.admin.examine import Examination, examine
from iris_state.admin.repair import repair
from iris_state.admin.stored import Stored, copy_of, in_files, on_servers, set_aside
from iris_state.policy import Policy
from iris_state.snapshots.snapshot import OtherVersion

_REFUSALS = (
    BadArchive,
    Full,
    InvariantBroken,
    DirectoryInUse,
    StartFailed,
    OtherVersion,
    Unavailable,
    backup.NotEmpty,
)


async def run(options: argparse.Namespace, nats: NatsSettings) -> int:
    """Execute the subcommand. Raises the refusals of the modules beside it."""
    if options.verb == "verify":
        return await verify(options, nats)
    if options.verb == "repair":
        return await mend(options, nats)
    if options.verb == "streams":
        return await streams(options, nats)
    path = Path(options.file)
    if options.verb == "backup":
        async with opened(options, nats) as stored:
            about = await backup.backup(
                stored.connection, path, events=options.events, logs=options.logs
            )
        say(f"{path}: {described(about)}")
        return OK
    async with opened(options, nats) as stored:
        if await stored.is_led():
            raise backup.NotEmpty(
                "a state service runs there: a backup is restored onto an empty cluster only"
            )
        about, number = await backup.restore(stored.connection, path)
    say(f"restored: {described(about)}")
    say(f"ids of new jobs begin at j{number}: those after the backup may name jobs that are lost")
    return OK


async def verify(options: argparse.Namespace, nats: NatsSettings) -> int:
    """Print what a backup, a stopped store or the servers hold; exit code 65 when that is
    damaged.
    """
    if options.file:
        say(f"{options.file} is whole: {described(backup.verify(Path(options.file)))}")
        return OK
    if not options.store:
        async with on_servers(nats) as stored:
            return await looked_at(stored)
    with tempfile.TemporaryDirectory(prefix="iris-verify-", dir=Path(options.store).parent) as copy:
        await asyncio.to_thread(copy_of, Path(options.store), Path(copy))
        async with in_files(Path(copy), nats) as stored:
            return await looked_at(stored)


async def streams(options: argparse.Namespace, nats: NatsSettings) -> int:
    """Print what of the streams is not as the settings say; make it so if told to."""
    async with opened(options, nats) as stored:
        declared = stored.connection.streams
        found = await declared.compare()
        if options.apply:
            await declared.apply()
        for one in found:
            say(words.difference(one, applied=options.apply))
    say(words.differences(found, applied=options.apply))
    return OK


async def looked_at(stored: Stored) -> int:
    found = await examine(stored, Policy())
    print_examination(found)
    bad = [*(f"bundle {wrong}" for wrong in await bad_bundles(stored)), *await bad_values(stored)]
    bad += await lost_records(stored)
    for wrong in bad:
        say(wrong)
    if await lacks_keys(stored):
        say(
            f"bucket {subjects.KEYS_BUCKET}: there are no keys; a leader makes new ones, tokens of before are refused"
        )
    unsound = bool(bad or found.unlike or found.salvaged.wrong)
    say(words.verdict(found, unsound=unsound))
    return OK if found.is_startable and not unsound else DAMAGED


async def bad_bundles(stored: Stored) -> list[str]:
    """Bundles whose content is damaged, each with the reason."""
    blobs = stored.connection.blobs(subjects.BUNDLES_BUCKET)
    bad = []
    for name in await blobs.names():
        try:
            await blobs.get(name)
        except ValueError as error:
            bad.append(str(error))
    return bad


async def lost_records(stored: Stored) -> list[str]:
    """Why no state service leads on a journal that can be read."""
    if await stored.connection.raw(subjects.JOURNAL.name).state() is None:
        return []
    lost = (await stored.connection.streams.standing(subjects.JOURNAL.name)).notes.get(
        subjects.RECORDS_LOST, ""
    )
    return [lost] if lost else []


async def bad_values(stored: Stored) -> list[str]:
    """Values of key-value buckets that no server can read, each with what to do."""
    bad = []
    for bucket in (subjects.KEYS_BUCKET, subjects.DISCOVERY_BUCKET):
        raw = stored.connection.raw(f"KV_{bucket}")
        state = await raw.state()
        if state is None:
            continue
        readable = [
            message async for message in raw.readable(max(state.first_seq - 1, 0), state.last_seq)
        ]
        if lost := state.messages - len(readable):
            bad.append(
                f"bucket {bucket}: {lost} of {state.messages} values cannot be read; a leader writes them anew"
            )
        elif bucket == subjects.KEYS_BUCKET and state.last_seq > max(
            (one.sequence for one in readable), default=0
        ):
            bad.append(
                f"bucket {bucket}: the server has dropped its newest value; a leader writes it anew"
            )
    if await stored.connection.raw(f"KV_{subjects.NOTIFY_BUCKET}").state() is not None:
        notices = stored.connection.key_value(subjects.NOTIFY_BUCKET)
        bad += [
            f"bucket {subjects.NOTIFY_BUCKET}: {key} cannot be read; the notifier goes on without it: "
            "add that target or subscription again, or restore a backup"
            for key in await notices.unreadable()
        ]
    return bad


async def lacks_keys(stored: Stored) -> bool:
    """Whether there are records and no keys: the server has dropped a damaged value as if there had
    been none, or no leader has made keys since a backup was restored.
    """
    keys = await stored.connection.raw(f"KV_{subjects.KEYS_BUCKET}").state()
    journal = await stored.connection.raw(subjects.JOURNAL.name).state()
    return keys is not None and not keys.last_seq and journal is not None and bool(journal.messages)


async def mend(options: argparse.Namespace, nats: NatsSettings) -> int:
    """Examine what is lost, ask for confirmation, keep a copy and a list of the losses, repair."""
    stamp = time.time_ns()
    copy = (
        Path(options.store).with_name(f"replaced-{stamp}")
        if options.store
        else Path(f"iris-replaced-{stamp}")
    )
    losses = copy.with_name(f"{copy.name}-losses.txt")
    if options.store:
        await asyncio.to_thread(set_aside, Path(options.store), copy)
    kept = False
    try:
        async with opened(options, nats) as stored:
            if await stored.is_led():
                say("a state service leads: stop the state services first")
                return FAILED
            found = await examine(stored, Policy())
            if found.survey.lost and not options.lossless:
                write_private(losses, words.losses(found))
            print_examination(found, losses if losses.exists() else None)
            if not (found.is_damaged or found.spare):
                say("nothing to repair")
                return OK
            if options.lossless and not found.costs_nothing:
                return DAMAGED
            if not (found.costs_nothing or options.yes or agreed(found)):
                say("nothing was changed")
                return FAILED
            kept = True
            if not options.store:
                await keep_messages(stored, copy)
            await repair(stored, found)
            say(f"repaired; what was replaced is kept as {copy}")
            return OK
    finally:
        if not kept:
            shutil.rmtree(copy, ignore_errors=True)
            losses.unlink(missing_ok=True)


async def keep_messages(stored: Stored, path: Path) -> None:
    """Write every readable message of journal and snapshots into a file in the format of a
    backup.
    """
    with Writer(path) as out:
        for name in (subjects.JOURNAL.name, f"OBJ_{subjects.SNAPSHOTS_BUCKET}"):
            raw = stored.connection.raw(name)
            state = await raw.state()
            if state is None:
                continue
            async for message in raw.readable(max(state.first_seq - 1, 0), state.last_seq):
                out.add(
                    Item(
                        name,
                        message.subject,
                        message.data,
                        dict(message.headers),
                        sequence=message.sequence,
                    )
                )


def opened(options: argparse.Namespace, nats: NatsSettings) -> AbstractAsyncContextManager[Stored]:
    return in_files(Path(options.store), nats) if options.store else on_servers(nats)


def agreed(found: Examination) -> bool:
    """Ask for confirmation on the terminal."""
    lost = sum(one.size for one in found.survey.lost)
    sys.stdout.write(f"repair, and go on without {lost} entries of the journal? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_examination(found: Examination, all_names_in: Path | None = None) -> None:
    for line in words.examination(found, all_names_in=str(all_names_in or "")):
        say(line)
    if all_names_in is not None:
        say(f"every job that has lost something is in {all_names_in}")


def described(about: backup.About) -> str:
    records = f"{counted(about.jobs, 'job')} and {counted(about.workers, 'worker')}"
    return f"{records} as of {words.moment(about.at_ms)}, commit {about.sequence}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="iris admin")
    parser.add_argument("--config", default="", metavar="FILE", help="an iris.toml")
    parser.add_argument(
        "--store", default="", metavar="DIR", help="the directory of a stopped embedded NATS server"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("verify").add_argument("file", nargs="?", default="")
    verbs.add_parser("streams").add_argument("--apply", action="store_true")
    wanted = verbs.add_parser("repair")
    wanted.add_argument("--yes", action="store_true")
    wanted.add_argument(
        "--lossless", action="store_true", help="only where nothing is lost; for a start"
    )
    wanted = verbs.add_parser("backup")
    wanted.add_argument("--events", action="store_true")
    wanted.add_argument("--logs", action="store_true")
    for verb in (wanted, verbs.add_parser("restore")):
        verb.add_argument("file")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    log_lines.set_up("admin", "warning", "plain")
    reads_file = options.verb == "restore" or (options.verb == "verify" and options.file)
    if options.store and not reads_file and not (Path(options.store) / "store").is_dir():
        sys.stderr.write(f"iris admin: nothing is stored in {options.store}\n")
        return MISUSED
    try:
        return asyncio.run(
            run(options, read_settings(options.config).section("nats", NatsSettings))
        )
    except BadSetting as error:
        sys.stderr.write(f"iris admin: {error}\n")
        return MISUSED
    except DamagedArchive as error:
        sys.stderr.write(f"iris admin: {error}\n")
        return DAMAGED
    except DamagedCommit as error:
        sys.stderr.write(f"iris admin: {error}; see `iris admin verify`\n")
        return DAMAGED
    except (*_REFUSALS, OSError) as error:
        sys.stderr.write(f"iris admin: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
