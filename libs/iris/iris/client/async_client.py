"""`AsyncClient`: the methods of `Client` as coroutines.

Drawn by `make draw` from `client.client`, `client.jobs` and `client.deployments`; change those, or `client.async_base`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

from iris.client.async_base import AsyncCalls, DeploymentWaits, JobWaits
from iris.client.client import IfExists
from iris.client.files.bundle import Bundle
from iris.client.options.jobs import CommandLine
from iris.client.options.updates import UpdateOptions
from iris.client.quotas import UserQuota
from iris_core.spec.jobs import Dependency, JobSpec
from iris_core.spec.option_table import DeployOptions, JobOptions, PoolOptions
from iris_core.spec.pools import PoolSpec
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.resources import ResourceOptions
from iris_core.views.causes import FailureGroup
from iris_core.views.cluster import DemandView, WorkerView
from iris_core.views.deployments import DeploymentView, RouteView
from iris_core.views.fleet import FleetView, PoolChangeView, PoolPlanView, PoolView, SliceView
from iris_core.views.jobs import (
    NEWEST_FIRST,
    AuditView,
    HistoryRow,
    JobView,
    PlanView,
    QueueHoldView,
    TaskView,
    TreeView,
)
from iris_core.views.notify import DeliveryView, MessageFormat, NotifyTargetView, SubscriptionView
from iris_core.views.projects import ProjectView, ShareView
from iris_core.views.usage import StoredUsageView, UsageView


class AsyncClient(AsyncCalls):
    """A connection to one gateway, for asyncio. Arguments and errors as of `Client`."""

    async def run(
        self,
        command: CommandLine,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        beside: bool = False,
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """As `Client.run`."""
        return AsyncJob(
            self,
            await self.call(
                lambda: self.sync.run(
                    command,
                    workdir=workdir,
                    idempotency_key=idempotency_key,
                    if_exists=if_exists,
                    beside=beside,
                    **options,
                )
            ),
        )

    async def submit(
        self,
        spec: JobSpec,
        *,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        parent: str | None = None,
        beside: bool = False,
    ) -> AsyncJob:
        """As `Client.submit`."""
        return AsyncJob(
            self,
            await self.call(
                lambda: self.sync.submit(
                    spec,
                    idempotency_key=idempotency_key,
                    if_exists=if_exists,
                    parent=parent,
                    beside=beside,
                )
            ),
        )

    async def plan(self, spec: JobSpec) -> PlanView:
        """As `Client.plan`."""
        return await self.call(lambda: self.sync.plan(spec))

    async def job(self, job: str, *, user: str | None = None) -> AsyncJob:
        """As `Client.job`."""
        return AsyncJob(self, await self.call(lambda: self.sync.job(job, user=user)))

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
    ) -> AsyncIterator[JobView]:
        """As `Client.jobs`."""
        return self.iterate(
            self.sync.jobs(
                state=state,
                user=user,
                band=band,
                name_prefix=name_prefix,
                label=label,
                parent=parent,
                order=order,
                without_routes=without_routes,
                project=project,
            )
        )

    async def tree(self, job: str) -> TreeView:
        """As `Client.tree`."""
        return await self.call(lambda: self.sync.tree(job))

    async def demand(self) -> DemandView:
        """As `Client.demand`."""
        return await self.call(self.sync.demand)

    def workers(self, *, state: str | None = None) -> AsyncIterator[WorkerView]:
        """As `Client.workers`."""
        return self.iterate(self.sync.workers(state=state))

    def audit(
        self, *, by: str | None = None, of: str | None = None, since: str | None = None
    ) -> AsyncIterator[AuditView]:
        """As `Client.audit`."""
        return self.iterate(self.sync.audit(by=by, of=of, since=since))

    def usage(
        self,
        *,
        by: str = "user",
        user: str | None = None,
        label: str | None = None,
        since: str | None = None,
        project: str | None = None,
    ) -> AsyncIterator[UsageView]:
        """As `Client.usage`."""
        return self.iterate(
            self.sync.usage(by=by, user=user, label=label, since=since, project=project)
        )

    def stored(self, *, user: str | None = None) -> AsyncIterator[StoredUsageView]:
        """As `Client.stored`."""
        return self.iterate(self.sync.stored(user=user))

    def quotas(self) -> AsyncIterator[UserQuota]:
        """As `Client.quotas`."""
        return self.iterate(self.sync.quotas())

    async def quota(self, user: str) -> UserQuota:
        """As `Client.quota`."""
        return await self.call(lambda: self.sync.quota(user))

    async def set_quota(
        self, user: str, *, max_band: str | None = None, **limits: float | str
    ) -> UserQuota:
        """As `Client.set_quota`."""
        return await self.call(lambda: self.sync.set_quota(user, max_band=max_band, **limits))

    async def rerun(
        self,
        job: str,
        *,
        failed_only: bool = False,
        tasks: str | Iterable[int] = "",
        env: Mapping[str, str] | None = None,
        after: Iterable[str | Dependency] = (),
        **options: Unpack[ResourceOptions],
    ) -> AsyncJob:
        """As `Client.rerun`."""
        return AsyncJob(
            self,
            await self.call(
                lambda: self.sync.rerun(
                    job, failed_only=failed_only, tasks=tasks, env=env, after=after, **options
                )
            ),
        )

    async def deploy(
        self,
        command: CommandLine,
        name: str,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[DeployOptions],
    ) -> AsyncDeployment:
        """As `Client.deploy`."""
        return AsyncDeployment(
            self,
            await self.call(
                lambda: self.sync.deploy(
                    command, name, workdir=workdir, idempotency_key=idempotency_key, **options
                )
            ),
        )

    async def deployment(self, name: str) -> AsyncDeployment:
        """As `Client.deployment`."""
        return AsyncDeployment(self, await self.call(lambda: self.sync.deployment(name)))

    def deployments(
        self, *, status: str | None = None, user: str | None = None
    ) -> AsyncIterator[DeploymentView]:
        """As `Client.deployments`."""
        return self.iterate(self.sync.deployments(status=status, user=user))

    async def send_lines(self, lines: str | os.PathLike[str]) -> Bundle:
        """As `Client.send_lines`."""
        return await self.call(lambda: self.sync.send_lines(lines))

    def pools(self) -> AsyncIterator[PoolView]:
        """As `Client.pools`."""
        return self.iterate(self.sync.pools())

    async def pool(self, pool: str) -> PoolView:
        """As `Client.pool`."""
        return await self.call(lambda: self.sync.pool(pool))

    async def set_pool(self, pool: str, **options: Unpack[PoolOptions]) -> PoolView:
        """As `Client.set_pool`."""
        return await self.call(lambda: self.sync.set_pool(pool, **options))

    async def replace_pool(
        self, spec: PoolSpec | Mapping[str, Any], *, version: int | None = None
    ) -> PoolView:
        """As `Client.replace_pool`."""
        return await self.call(lambda: self.sync.replace_pool(spec, version=version))

    async def plan_pool(self, spec: PoolSpec | Mapping[str, Any]) -> PoolPlanView:
        """As `Client.plan_pool`."""
        return await self.call(lambda: self.sync.plan_pool(spec))

    async def remove_pool(self, pool: str, *, drain: bool = False) -> bool:
        """As `Client.remove_pool`."""
        return await self.call(lambda: self.sync.remove_pool(pool, drain=drain))

    async def pause_pool(self, pool: str, *, reason: str = "") -> PoolView:
        """As `Client.pause_pool`."""
        return await self.call(lambda: self.sync.pause_pool(pool, reason=reason))

    async def resume_pool(self, pool: str, *, reason: str = "") -> PoolView:
        """As `Client.resume_pool`."""
        return await self.call(lambda: self.sync.resume_pool(pool, reason=reason))

    def pool_history(self, pool: str) -> AsyncIterator[PoolChangeView]:
        """As `Client.pool_history`."""
        return self.iterate(self.sync.pool_history(pool))

    async def fleet(self) -> FleetView:
        """As `Client.fleet`."""
        return await self.call(self.sync.fleet)

    def fleet_slices(
        self, *, pool: str | None = None, status: str | None = None
    ) -> AsyncIterator[SliceView]:
        """As `Client.fleet_slices`."""
        return self.iterate(self.sync.fleet_slices(pool=pool, status=status))

    async def fleet_slice(self, slice_: str) -> SliceView:
        """As `Client.fleet_slice`."""
        return await self.call(lambda: self.sync.fleet_slice(slice_))

    async def drain_slice(
        self, slice_: str, *, deadline: float | str | None = None, reason: str = ""
    ) -> SliceView:
        """As `Client.drain_slice`."""
        return await self.call(
            lambda: self.sync.drain_slice(slice_, deadline=deadline, reason=reason)
        )

    def notify_targets(self) -> AsyncIterator[NotifyTargetView]:
        """As `Client.notify_targets`."""
        return self.iterate(self.sync.notify_targets())

    async def notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """As `Client.notify_target`."""
        return await self.call(lambda: self.sync.notify_target(name, user=user))

    async def add_notify_target(
        self,
        name: str,
        *,
        webhook: str = "",
        smtp: str = "",
        secret: str = "",
        message_format: MessageFormat = "cloudevents",
        shared: bool = False,
    ) -> NotifyTargetView:
        """As `Client.add_notify_target`."""
        return await self.call(
            lambda: self.sync.add_notify_target(
                name,
                webhook=webhook,
                smtp=smtp,
                secret=secret,
                message_format=message_format,
                shared=shared,
            )
        )

    async def remove_notify_target(self, name: str, *, user: str = "") -> None:
        """As `Client.remove_notify_target`."""
        return await self.call(lambda: self.sync.remove_notify_target(name, user=user))

    async def test_notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """As `Client.test_notify_target`."""
        return await self.call(lambda: self.sync.test_notify_target(name, user=user))

    async def pause_notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """As `Client.pause_notify_target`."""
        return await self.call(lambda: self.sync.pause_notify_target(name, user=user))

    async def resume_notify_target(self, name: str, *, user: str = "") -> NotifyTargetView:
        """As `Client.resume_notify_target`."""
        return await self.call(lambda: self.sync.resume_notify_target(name, user=user))

    def notify_subscriptions(self) -> AsyncIterator[SubscriptionView]:
        """As `Client.notify_subscriptions`."""
        return self.iterate(self.sync.notify_subscriptions())

    async def subscribe(
        self,
        to: str,
        on: Sequence[str],
        *,
        job: str = "",
        project: str = "",
        all_mine: bool = False,
    ) -> SubscriptionView:
        """As `Client.subscribe`."""
        return await self.call(
            lambda: self.sync.subscribe(to, on, job=job, project=project, all_mine=all_mine)
        )

    async def unsubscribe(self, subscription: str) -> None:
        """As `Client.unsubscribe`."""
        return await self.call(lambda: self.sync.unsubscribe(subscription))

    def deliveries(
        self, *, target: str | None = None, status: str | None = None
    ) -> AsyncIterator[DeliveryView]:
        """As `Client.deliveries`."""
        return self.iterate(self.sync.deliveries(target=target, status=status))

    def projects(self) -> AsyncIterator[ProjectView]:
        """As `Client.projects`."""
        return self.iterate(self.sync.projects())

    async def project(self, project: str) -> ProjectView:
        """As `Client.project`."""
        return await self.call(lambda: self.sync.project(project))

    def shares(self, *, project: str | None = None) -> AsyncIterator[ShareView]:
        """As `Client.shares`."""
        return self.iterate(self.sync.shares(project=project))

    async def set_project(
        self,
        project: str,
        *,
        guarantee: Mapping[str, float | str] | None = None,
        weight: float | Literal[""] | None = None,
        limit: Mapping[str, float | str] | None = None,
        max_pending: int | None = None,
        members: Sequence[str] | None = None,
        admins: Sequence[str] | None = None,
        default_for: Sequence[str] | None = None,
    ) -> ProjectView:
        """As `Client.set_project`."""
        return await self.call(
            lambda: self.sync.set_project(
                project,
                guarantee=guarantee,
                weight=weight,
                limit=limit,
                max_pending=max_pending,
                members=members,
                admins=admins,
                default_for=default_for,
            )
        )

    async def replace_project(
        self, project: str, spec: ProjectSpec | Mapping[str, Any], *, version: int | None = None
    ) -> ProjectView:
        """As `Client.replace_project`."""
        return await self.call(lambda: self.sync.replace_project(project, spec, version=version))

    async def remove_project(self, project: str) -> None:
        """As `Client.remove_project`."""
        return await self.call(lambda: self.sync.remove_project(project))

    async def task(self, task: str) -> TaskView:
        """As `Client.task`."""
        return await self.call(lambda: self.sync.task(task))

    async def fetch(
        self,
        task: str,
        directory: str | os.PathLike[str],
        *,
        attempt: int | None = None,
        on_read: Callable[[int, int], None] | None = None,
        on_replace: Callable[[str], None] | None = None,
    ) -> int:
        """As `Client.fetch`."""
        return await self.call(
            lambda: self.sync.fetch(
                task, directory, attempt=attempt, on_read=on_read, on_replace=on_replace
            )
        )

    async def cancel(self, name: str, reason: str = "", *, now: bool = False) -> JobView:
        """As `Client.cancel`."""
        return await self.call(lambda: self.sync.cancel(name, reason, now=now))

    async def requeue(self, name: str, reason: str = "") -> JobView:
        """As `Client.requeue`."""
        return await self.call(lambda: self.sync.requeue(name, reason))

    async def close_map(self, job: str, reason: str = "") -> JobView:
        """As `Client.close_map`."""
        return await self.call(lambda: self.sync.close_map(job, reason))

    async def hold(
        self, job: str, reason: str = "", *, stop: bool = False, version: int | None = None
    ) -> JobView:
        """As `Client.hold`."""
        return await self.call(lambda: self.sync.hold(job, reason, stop=stop, version=version))

    async def release(
        self, job: str, *, drop_after: bool = False, version: int | None = None
    ) -> JobView:
        """As `Client.release`."""
        return await self.call(
            lambda: self.sync.release(job, drop_after=drop_after, version=version)
        )

    async def update(
        self, job: str, *, version: int | None = None, **options: Unpack[UpdateOptions]
    ) -> JobView:
        """As `Client.update`."""
        return await self.call(lambda: self.sync.update(job, version=version, **options))

    async def hold_queue(
        self, *, user: str = "", band: str = "", label: str = "", reason: str = ""
    ) -> QueueHoldView:
        """As `Client.hold_queue`."""
        return await self.call(
            lambda: self.sync.hold_queue(user=user, band=band, label=label, reason=reason)
        )

    async def release_queue(self, hold: str) -> None:
        """As `Client.release_queue`."""
        return await self.call(lambda: self.sync.release_queue(hold))

    async def queue_holds(self) -> list[QueueHoldView]:
        """As `Client.queue_holds`."""
        return await self.call(self.sync.queue_holds)


class AsyncJob(JobWaits):
    """One job, for asyncio. Arguments and errors as of `Job`."""

    @property
    def state(self) -> str:
        """As `Job.state`."""
        return self.sync.state

    @property
    def view(self) -> JobView:
        """As `Job.view`."""
        return self.sync.view

    @property
    def ended(self) -> bool:
        """As `Job.ended`."""
        return self.sync.ended

    async def refresh(self) -> JobView:
        """As `Job.refresh`."""
        return await self._client.call(self.sync.refresh)

    async def causes(self) -> list[FailureGroup]:
        """As `Job.causes`."""
        return await self._client.call(self.sync.causes)

    def tasks(self, *, state: str | None = None, retried: bool = False) -> AsyncIterator[TaskView]:
        """As `Job.tasks`."""
        return self._client.iterate(self.sync.tasks(state=state, retried=retried))

    async def task(self, index: int) -> TaskView:
        """As `Job.task`."""
        return await self._client.call(lambda: self.sync.task(index))

    async def usage(self) -> UsageView:
        """As `Job.usage`."""
        return await self._client.call(self.sync.usage)


class AsyncDeployment(DeploymentWaits):
    """One deployment, for asyncio. Arguments and errors as of `Deployment`."""

    @property
    def status(self) -> str:
        """As `Deployment.status`."""
        return self.sync.status

    @property
    def view(self) -> DeploymentView:
        """As `Deployment.view`."""
        return self.sync.view

    @property
    def is_ready(self) -> bool:
        """As `Deployment.is_ready`."""
        return self.sync.is_ready

    async def refresh(self) -> DeploymentView:
        """As `Deployment.refresh`."""
        return await self._client.call(self.sync.refresh)

    async def scale(self, replicas: int) -> DeploymentView:
        """As `Deployment.scale`."""
        return await self._client.call(lambda: self.sync.scale(replicas))

    async def update(
        self,
        command: CommandLine | None = None,
        *,
        version: int | None = None,
        **options: Unpack[DeployOptions],
    ) -> DeploymentView:
        """As `Deployment.update`."""
        return await self._client.call(
            lambda: self.sync.update(command, version=version, **options)
        )

    async def rollback(self, revision: int = 0) -> DeploymentView:
        """As `Deployment.rollback`."""
        return await self._client.call(lambda: self.sync.rollback(revision))

    async def pause(self) -> DeploymentView:
        """As `Deployment.pause`."""
        return await self._client.call(self.sync.pause)

    async def resume(self) -> DeploymentView:
        """As `Deployment.resume`."""
        return await self._client.call(self.sync.resume)

    async def delete(self) -> DeploymentView:
        """As `Deployment.delete`."""
        return await self._client.call(self.sync.delete)

    def routes(self) -> AsyncIterator[RouteView]:
        """As `Deployment.routes`."""
        return self._client.iterate(self.sync.routes())

    def history(self) -> AsyncIterator[HistoryRow]:
        """As `Deployment.history`."""
        return self._client.iterate(self.sync.history())

    async def why(self) -> dict[str, Any]:
        """As `Deployment.why`."""
        return await self._client.call(self.sync.why)
