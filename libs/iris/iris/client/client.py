"""`Client`: the gateway's API for programs; the CLI uses it too.

    with Client() as c:
        job = c.run(["python", "train.py"], name="train", tpu="v5litepod-16")
        job.wait()
        job.raise_for_state()

Needs the standard library, click's package aside, and msgspec only. Threads may share a client. See
also: `client.async_client`, its asynchronous twin; `jobs`, the handle of a job; `options.jobs`, the
    options of a job.
"""

from __future__ import annotations

import getpass
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from msgspec import to_builtins
from msgspec.structs import replace

from iris.client.deployments import Deployment
from iris.client.fleet import FleetApi
from iris.client.http.transport import HttpRequest, UrlQuery, in_path
from iris.client.jobs import Job
from iris.client.notify import NotifyApi
from iris.client.options.deployments import deployment_fields
from iris.client.options.jobs import (
    EACH_LINE,
    CommandLine,
    OptionReader,
    job_spec,
    read_amounts,
    read_dependency,
    read_lines,
)
from iris.client.options.maps import (
    LOOKAHEAD,
    SHOWN,
    KeywordSettings,
    MapOptions,
    MapSettings,
    check_options,
    split_options,
)
from iris.client.options.names import refuse_unknown, takes
from iris.client.problems import InvalidOption, NotFound, Problem
from iris.client.projects import ProjectApi
from iris.client.quotas import UserQuota, put_limits, read_limits, read_quota
from iris_core.spec.index_set import IndexSet
from iris_core.spec.jobs import MAX_REPLICAS, Dependency, JobSpec
from iris_core.spec.option_table import DeployOptions, JobOptions, TaskOptions
from iris_core.spec.resources import ResourceOptions
from iris_core.spec.serving import TASK_TOKEN
from iris_core.views.cluster import DemandView, WorkerView
from iris_core.views.deployments import DeploymentView
from iris_core.views.jobs import (
    NEWEST_FIRST,
    AuditView,
    CallerView,
    JobView,
    PlanView,
    TreeView,
)
from iris_core.views.usage import StoredUsageView, UsageView

if TYPE_CHECKING:
    from iris.client.files.bundle import Bundle
    from iris.client.maps.future import CallFuture
    from iris.client.maps.mapping import Mapped

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")
IfExists = Literal["error", "keep", "replace"]


class Client(FleetApi, NotifyApi, ProjectApi):
    """A connection to one gateway.

    Args:
        url: its address; left out, the first of ``IRIS_URL``, ``IRIS_GATEWAY_URL``, the context,
            the local cluster.
        token: bearer token; left out, ``IRIS_TOKEN``, the file ``IRIS_TOKEN_FILE``, the context's,
            or, for its address, the local cluster's.
        context: a named gateway.
        timeout_s: how long one answer may take.
        retry_for_s: how long a request is repeated, under one idempotency key, while the gateway
            restarts or cannot reach the state service; 0: never. The log says why it waits.

    Raises NoGateway without an address of a gateway. Every method may raise Problem and
    Unreachable.
    """

    @takes(JobOptions)
    def run(
        self,
        command: CommandLine,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        beside: bool = False,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Submit a job and return at once; options as in ``iris run``.

        Raises TypeError for an unknown option, InvalidOption, Conflict, NotFound, Rejected.

        ``beside``: in a task, the job is no child of the task's job, and outlives it.

        ``workdir``: a directory sent along, the tasks' working directory; the packages that its
        ``uv.lock`` or ``requirements.txt`` lists are installed.
        """
        lines = options.get("each_line")
        if workdir is not None:
            self._add_bundle(Path(workdir), options, lines)
        elif lines:
            options["bundle"] = self.send_lines(lines).digest
        if beside:
            if not (name := options.get("name")):
                raise InvalidOption("a job that is submitted beside another needs a name")
            options["name"] = f"/{name.lstrip('/')}"
            options["user"] = options.get("user") or self._reader()
        spec = self.spec(command, options, idempotency_key)
        return self.submit(
            spec,
            idempotency_key=idempotency_key,
            if_exists=if_exists,
            parent=options.get("parent"),
            beside=beside,
        )

    def spec(
        self, command: CommandLine, options: JobOptions, idempotency_key: str | None = None
    ) -> JobSpec:
        """The job that ``options`` describe, as `run` submits it. Raises InvalidOption.

        One idempotency key and owner give the same generated name each time, also with a token that
        was renewed.
        """
        refuse_unknown("spec", options, JobOptions.__annotations__)
        options = options.copy()
        options["user"] = owner = options.get("user") or self._owner()
        named = options.get("name") or not idempotency_key
        return job_spec(
            command,
            options,
            seed="" if named else f"{owner or self._token_user()}\0{idempotency_key}",
        )

    def _owner(self) -> str:
        """The owner of what is created and names none: this process's user. Empty leaves it to the
        gateway: the token's user, or in a task its job's owner.
        """
        if self.address.bearer() or os.environ.get("IRIS_JOB"):
            return ""
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return ""

    def _token_user(self) -> str:
        """Empty without a token, and for a task's: its jobs are below its own, so their names are
        nobody else's.
        """
        token = self.address.bearer()
        return (
            ""
            if not token or token.startswith(TASK_TOKEN)
            else self.get("/v1/whoami", CallerView).user
        )

    @overload
    def map(
        self,
        function: Callable[[A], R],
        first: Iterable[A],
        /,
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> Mapped[R]: ...

    @overload
    def map(
        self,
        function: Callable[[A, B], R],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> Mapped[R]: ...

    @overload
    def map(
        self,
        function: Callable[[A, B, C], R],
        first: Iterable[A],
        second: Iterable[B],
        third: Iterable[C],
        /,
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> Mapped[R]: ...

    @overload
    def map(
        self,
        function: Callable[..., R],
        first: Iterable[Any],
        second: Iterable[Any],
        third: Iterable[Any],
        fourth: Iterable[Any],
        /,
        *more: Iterable[Any],
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> Mapped[R]: ...

    @overload
    def map(
        self,
        function: Callable[..., R],
        /,
        *iterables: Iterable[Any],
        kwargs: Mapping[str, Any] | None,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> Mapped[R]: ...

    @overload
    def map(
        self,
        function: Callable[..., R],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[KeywordSettings],
    ) -> Mapped[R | BaseException]: ...

    @takes(MapOptions)
    def map(
        self,
        function: Callable[..., R],
        *iterables: Iterable[Any],
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapOptions],
    ) -> Mapped[R]:
        """Call a function once per item, each call a task of one job; see `maps.calls` for what can
        be sent.

        Returns one future per item. A call that raises fails only its own future; the others
        continue. Several iterables give a call several arguments, as the built-in ``map``. Of an
        iterator, whose length is not known, the first items are submitted at once, and a thread
        adds the others as they come, ``lookahead`` of them ahead of the calls that have ended.
        Warns when no registered host could ever take a call. Raises what iterating and pickling
        raise, and as `run`.
        """
        if not iterables:
            raise TypeError("map() needs at least one iterable")
        calls: Iterable[Iterable[Any]] = zip(*iterables, strict=False)
        if all(isinstance(one, Sized) for one in iterables):
            calls = list(calls)
        return self.starmap(function, calls, workdir=workdir, **options)

    @takes(MapOptions)
    def starmap(
        self,
        function: Callable[..., R],
        items: Iterable[Iterable[Any]],
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapOptions],
    ) -> Mapped[R]:
        """As `map`; each item holds the positional arguments of one call."""
        from iris.client.maps.calls import check_size, pack_arguments  # imported only for `map`
        from iris.client.maps.items import ItemReader, feed
        from iris.client.maps.mapping import Mapped
        from iris.client.maps.open_map import OpenMap

        if not callable(function):
            raise TypeError(f"map() calls a function, not {function!r}")
        check_options(options)
        chunksize = options.get("chunksize", 1)
        reader = None
        if isinstance(items, Sized):
            calls = [tuple(item) for item in items]
        else:
            reader = ItemReader(items, options.get("lookahead", LOOKAHEAD), chunksize)
            calls = reader.take(chunksize)
            if reader.is_over and reader.error is not None:
                raise reader.error
            if reader.is_over:
                reader = None
        if not calls:
            return Mapped(None, self, None)
        check_size(len(calls), chunksize)
        mapped: Mapped[R] = self._submit_calls(
            function,
            pack_arguments(calls, chunksize),
            len(calls),
            options,
            workdir=workdir,
            open_=reader is not None,
        )
        if reader is not None:
            mapped.listen(reader.on_done)
            feed(reader, OpenMap(self, mapped), chunksize)
        return mapped

    def _submit_calls(
        self,
        function: Callable[..., R],
        blobs: Iterable[bytes],
        count: int,
        options: MapOptions,
        *,
        workdir: str | os.PathLike[str] | None = None,
        open_: bool = False,
        futures: Sequence[CallFuture[R]] = (),
    ) -> Mapped[R]:
        """Submit the job of a map: the pickled arguments of each task, of so many calls together.

        ``open_``: calls are added to it later. ``futures``: of the calls; left out, new ones.
        """
        from iris.client.maps.calls import (  # only for `map`
            COMMAND,
            code_of,
            is_of_missing_code,
            send_calls,
            send_files,
        )
        from iris.client.maps.open_map import IDLE_S

        options = options.copy()
        options.pop("lookahead", None)
        kwargs = options.pop("kwargs", None) or {}
        chunksize = options.pop("chunksize", 1)
        idle_s = IDLE_S if open_ else None
        reuse = options.pop("reuse", 1)
        fresh = options.pop("fresh", "memory")
        shown, job_options = split_options(
            options, -(-count // chunksize), MAX_REPLICAS if open_ else 0
        )
        code = code_of(function, kwargs, chunksize, workdir)
        sent = send_calls(
            self.transport,
            code,
            blobs,
            count,
            chunksize=chunksize,
            idle_s=idle_s,
            reuse=reuse,
            fresh=fresh,
        )
        if workdir is not None:
            self._add_bundle(Path(workdir), job_options)
        spec = replace(self.spec(COMMAND, job_options), calls=sent)
        try:
            job = self.submit(spec, parent=job_options.get("parent"))
        except Problem as problem:
            self.transport.stored.clear()
            if not is_of_missing_code(problem):
                raise
            send_files(
                self.transport, code
            )  # the cluster has lost what it had lately: it was emptied
            job = self.submit(spec, parent=job_options.get("parent"))
        for warning in job.view.warnings:
            warnings.warn(warning, stacklevel=2)
        of_user = job_options.get("user")
        return self._followed(job, shown, futures, fed=open_, of_user=of_user)

    def map_of(
        self, job: str, *, of_user: str | None = None, **options: Unpack[MapOptions]
    ) -> Mapped[Any]:
        """The futures of a map by the name or id of its job: of another process, or one that was
        killed.

        ``options``: ``order``, ``return_exceptions`` and ``progress``. ``of_user``: the owner of a
        map of another user, which admins may read; unpickling its results runs code of that user
        here. Warns when anything but the end of its iterator has closed it. Raises NotFound,
        InvalidOption for a job that is not a map of yours, or not one of ``of_user``.
        """
        check_options(options)
        shown, others = split_options(options)
        refuse_unknown("map_of", others, SHOWN)
        found = self.job(job, user=of_user)
        if found.view.spec.calls is not None:  # others are refused below
            self._check_owner(found, of_user)
        if found.view.note and not found.view.open:
            warnings.warn(
                f"{found.name} may lack calls of its items: {found.view.note}", stacklevel=2
            )
        return self._followed(found, shown, of_user=of_user, counts_from=self._last_attempts(found))

    def _last_attempts(self, job: Job) -> dict[int, int]:
        """Of the tasks of a job that were tried again, the first attempt whose result counts: the
        last one, or the next one of a task that waits for it.
        """
        return {
            task.index: task.attempts[-1].number + (task.state == "pending")
            for task in job.tasks(retried=True)
        }

    def _check_owner(self, job: Job, of_user: str | None) -> None:
        """Raises InvalidOption for a job whose owner is neither the user of this process nor the
        one that was named: unpickling what its calls return would run code of its owner.
        """
        owner = job.view.user
        reader = of_user or self._reader()
        if owner == reader:
            return
        words = f"{job.name} ({job.id}) belongs to {owner}, not to {reader}"
        if of_user:
            raise InvalidOption(words)
        raise InvalidOption(
            f"{words}; unpickling its results runs code of {owner} here: "
            f"of_user={owner!r} permits that"
        )

    def _reader(self) -> str:
        """Whose results this process may unpickle: those of its token's user, in a task of its
        job's owner, without a token of this process's user.
        """
        token = self.address.bearer()
        own = os.environ.get("IRIS_JOB")
        if own and (not token or token.startswith(TASK_TOKEN)):
            return self.job(own).view.user
        return self._owner() or self.get("/v1/whoami", CallerView).user

    def _followed(
        self,
        job: Job,
        shown: MapOptions,
        futures: Sequence[CallFuture[Any]] = (),
        *,
        fed: bool = False,
        of_user: str | None = None,
        counts_from: Mapping[int, int] | None = None,
    ) -> Mapped[Any]:
        """``of_user``: the owner, when it was named. ``counts_from``: as of `Mapped`."""
        from iris.client.maps.mapping import Mapped
        from iris.client.maps.progress import show_progress  # imported only for `map`

        spec = job.view.spec
        if spec.calls is None:
            raise InvalidOption(f"{job.name} is not a map, or not yours")
        order = shown.get("order", "items")
        exceptions = shown.get("return_exceptions", False)
        mapped: Mapped[Any] = Mapped(
            job,
            self,
            spec.calls,
            order=order,
            return_exceptions=exceptions,
            futures=futures,
            fed=fed,
            of_user=of_user,
            counts_from=counts_from,
        )
        if shown.get("progress", False):
            show_progress(job.name, mapped)
        return mapped

    def submit(
        self,
        spec: JobSpec,
        *,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        parent: str | None = None,
        beside: bool = False,
    ) -> Job:
        """Submit a specification; ``beside``: as of `run`.

        The same idempotency key always gives the same job. Raises Conflict for a key that has
        created another job, NotFound for an unknown ``parent``.
        """
        query: UrlQuery = {
            "if_exists": None if if_exists == "error" else if_exists,
            "parent": parent or None,
            "beside": "true" if beside else None,
        }
        return Job(
            self, self.post("/v1/jobs", JobView, body=spec, query=query, key=idempotency_key)
        )

    def plan(self, spec: JobSpec) -> PlanView:
        """A dry run: the placements or the reason, if the job were submitted now; creates
        nothing.
        """
        return self.post("/v1/jobs:plan", PlanView, body=spec)

    def job(self, job: str, *, user: str | None = None) -> Job:
        """A job by name or id. A name is looked up among one's own jobs, then among all; ``user``,
        or ``train@ann`` wherever a job is named, is the job of that user. Raises NotFound, Conflict
        for a name of several other users.
        """
        return Job(self, self.get(f"/v1/jobs/{in_path(job)}", JobView, {"user": user}))

    def jobs(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        band: str | None = None,
        name_prefix: str | None = None,
        label: str | None = None,
        parent: str | None = None,
        order: str = NEWEST_FIRST,
        without_routes: bool = False,
        project: str | None = None,
    ) -> Iterator[JobView]:
        """Every job that matches, page by page, in an order of `iris_core.views.jobs.JOB_ORDERS`.

        Any but the default lists the newest `JOBS_ORDERED` only. ``label``: ``key=value``.
        ``parent``: the jobs right below this one. ``without_routes``: no jobs that are routes of
        deployments. ``project``: those in this one, and in those below it.
        """
        query: UrlQuery = {
            "state": state,
            "user": user,
            "band": band,
            "order": order,
            "parent": parent,
        }
        more = {
            "name_prefix": name_prefix,
            "label": label,
            "project": project,
            "without_routes": without_routes or None,
        }
        return self.pages("/v1/jobs", JobView, {**query, **more})

    def tree(self, job: str) -> TreeView:
        """A job and its descendants."""
        return self.get(f"/v1/jobs/{in_path(job)}/tree", TreeView)

    def demand(self) -> DemandView:
        """How many slices and hosts are missing for what waits."""
        return self.get("/v1/demand", DemandView)

    def workers(self, *, state: str | None = None) -> Iterator[WorkerView]:
        """Every host, or those in one state."""
        return self.pages("/v1/workers", WorkerView, {"state": state})

    def audit(
        self, *, by: str | None = None, of: str | None = None, since: str | None = None
    ) -> Iterator[AuditView]:
        """Audit log, newest first: all for admins; for others what they did, and what was done to
        what is theirs.

        Args:
            by: only commands of this user. of: only what was done to this job, worker or
                deployment, or to what this user owns. since: a time, or a duration before now such
                    as ``7d``.
        """
        return self.pages("/v1/audit", AuditView, {"by": by, "of": of, "since": since})

    def usage(
        self,
        *,
        by: str = "user",
        user: str | None = None,
        label: str | None = None,
        since: str | None = None,
        project: str | None = None,
    ) -> Iterator[UsageView]:
        """What jobs have held and used, of all users for admins, for others of their own.

        Args:
            by: ``user``, ``day`` (of UTC), ``job``, ``project`` (each with those below it),
                ``label``: the label ``project`` of jobs, or ``pool``: each user's on the hosts of a
                pool, and for admins, without a user, what idled there.
                user, label: only of these; ``project=vision``, or any label with ``by="job"``.
                project: only of this one and those below it.
                since: only since the day of this time, or of a duration before now such as ``30d``;
                    without it, all that is kept: 400 days.
        """
        return self.pages(
            "/v1/usage",
            UsageView,
            {"by": by, "user": user, "label": label, "since": since, "project": project},
        )

    def stored(self, *, user: str | None = None) -> Iterator[StoredUsageView]:
        """What is stored of each user: records of jobs, artifacts, output, results of calls, and
        bundles; of all users for admins, for others of their own.

        Args:
            user: only of this one.
        """
        return self.pages("/v1/usage/stored", StoredUsageView, {"user": user})

    def quotas(self) -> Iterator[UserQuota]:
        """The users and groups that have limits of their own, and what is used of them."""
        return map(read_quota, self.pages("/v1/quotas", dict))

    def quota(self, user: str) -> UserQuota:
        """The limits of a user, or of each member of a ``@GROUP``, and what is used of them."""
        return read_quota(self.get(f"/v1/quotas/{in_path(user)}", dict))

    def set_quota(
        self, user: str, *, max_band: str | None = None, **limits: float | str
    ) -> UserQuota:
        """Set some of the limits of a user, or of each member of a ``@GROUP``; the others stay. For
        admins.

        Args:
            limits: as the options of `iris quota set` are named, for example
                ``max_running_cpu=64`` (cores), ``max_live_bytes="1GiB"``; 0 is unlimited.

        Raises InvalidOption, TypeError for a limit that does not exist, ValueError without any.
        """
        wanted = read_limits({"max_band": max_band, **limits})
        if not wanted:
            raise ValueError("give at least one limit")
        return read_quota(put_limits(self, user, wanted))

    @takes(ResourceOptions)
    def rerun(
        self,
        job: str,
        *,
        failed_only: bool = False,
        tasks: str | Iterable[int] = "",
        env: Mapping[str, str] | None = None,
        after: Iterable[str | Dependency] = (),
        **options: Unpack[ResourceOptions],
    ) -> Job:
        """Submit a job again, or only its tasks that did not succeed, which keep their indexes; a
        gang whole.

        ``tasks``: only these, by their indexes: ``"3-7,9"`` or ``[3, 4]``. ``env`` adds variables,
        and replaces those of its names; ``memory="8GiB"``, ``cpu`` and ``disk`` are other amounts
        for each task. It waits for the jobs of ``after`` (``train``, ``train:any``), and for none
        of those that the first one waited for; ``view.warnings`` names them.
        """
        if isinstance(after, str):
            raise InvalidOption(f"after is a list of jobs, not a text: [{after!r}]")
        waits = [to_builtins(read_dependency(one)) for one in after]
        indexes = tasks if isinstance(tasks, str) else str(IndexSet.of(tasks))
        reading = OptionReader()
        amounts = read_amounts(options, reading)
        reading.finish()
        what = {
            "failed_only": failed_only,
            "tasks": indexes,
            "env": dict(env or {}),
            "after": waits,
        }
        body = {**what, "resources": amounts}
        return Job(self, self.post(f"/v1/jobs/{in_path(job)}/rerun", JobView, body=body))

    @takes(DeployOptions)
    def deploy(
        self,
        command: CommandLine,
        name: str,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[DeployOptions],
    ) -> Deployment:
        """Create a deployment and return at once; options as in ``iris deploy create``.

        Raises InvalidOption, Conflict, Rejected. ``workdir``: a directory sent along, where each
            route starts.
        """
        if workdir is not None:
            self._add_bundle(Path(workdir), options)
        options["user"] = options.get("user") or self._owner()
        body = {"name": name, **deployment_fields(command, options, new=True)}
        return Deployment(
            self, self.post("/v1/deployments", DeploymentView, body=body, key=idempotency_key)
        )

    def deployment(self, name: str) -> Deployment:
        """A deployment by name or id. Raises NotFound."""
        return Deployment(self, self.get(f"/v1/deployments/{in_path(name)}", DeploymentView))

    def deployments(
        self, *, status: str | None = None, user: str | None = None
    ) -> Iterator[DeploymentView]:
        """Every deployment that matches, without its routes; destroyed ones only with that
        ``status``.
        """
        return self.pages("/v1/deployments", DeploymentView, {"status": status, "user": user})

    def _add_bundle(
        self, workdir: Path, options: TaskOptions, lines: str | os.PathLike[str] | None = None
    ) -> None:
        bundle = self.send_bundle(workdir, lines=lines)
        options["bundle"] = bundle.digest
        options.setdefault("packages", bundle.packages)

    def send_lines(self, lines: str | os.PathLike[str]) -> Bundle:
        """Store the lines of ``each_line`` alone, for tasks without a workdir. Raises
        InvalidOption.
        """
        with tempfile.TemporaryDirectory(prefix="iris-lines-") as empty:
            return self.send_bundle(Path(empty), lines=lines)

    def send_bundle(
        self,
        directory: Path,
        *,
        everything: bool = False,
        lines: str | os.PathLike[str] | None = None,
        on_packed: Callable[[Bundle], None] | None = None,
    ) -> Bundle:
        """Store a directory's files; a bundle that is stored already is not sent again. Raises
        InvalidOption.

        ``everything``: also what ignore files name. ``lines``: the file of ``each_line``, sent
        along. ``on_packed``: called before it is sent.
        """
        from iris.client.files.bundle import pack_directory  # imported only for bundles

        with tempfile.TemporaryFile() as file:
            added = {}
            if lines:
                read_lines(lines)
                added[EACH_LINE] = Path(lines).resolve()
            bundle = pack_directory(directory, file, everything=everything, added=added)
            if on_packed is not None:
                on_packed(bundle)
            path = f"/v1/bundles/{bundle.digest}"
            try:
                self.transport.send(HttpRequest("HEAD", path))
            except NotFound:
                headers = {
                    "Content-Type": "application/gzip",
                    "Content-Length": str(bundle.packed_bytes),
                }
                self.transport.send(HttpRequest("PUT", path, body=file, headers=headers))
            return bundle
