"""Provides what an attempt needs before it starts: its bundle, its environment, and for a gang a
checked host.

Part of the shell: it waits. Out of scope: how each is provided (host_checks, fetch, builder,
    preloading).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, TaskTemplate
from iris_core.states import Cause
from iris_worker.agent.instructions import Prepare
from iris_worker.attempt.builder import Builder
from iris_worker.attempt.bundles.fetch import Fetcher
from iris_worker.attempt.executor import Executor
from iris_worker.attempt.health.host_checks import HostChecks
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.attempt.templates.preloading import is_cloned, leaves_directory


class Preparer:
    """Prepares the attempts of one host.

    Args:
        on_detail: called with what is done for an attempt when that is to wait for others.
    """

    def __init__(
        self,
        executor: Executor,
        fetcher: Fetcher,
        builder: Builder,
        checks: HostChecks,
        on_detail: Callable[[AttemptRef, str], object],
    ) -> None:
        self._executor = executor
        self._fetcher = fetcher
        self._builder = builder
        self._checks = checks
        self._on_detail = on_detail

    async def prepare(self, ask: Prepare) -> Ended | None:
        """Fetch an attempt's bundle into its directory, and provide its environment; returns its
        end if that failed.
        """
        if (
            ask.in_gang
            and self._checks.runs("before_gang")
            and (trouble := await self._checks.verdict())
        ):
            return Ended(Cause.INFRASTRUCTURE, error=trouble)
        try:
            shares = self._executor.preloading.shares(ask.template)
            slot = await self._executor.prepare(ask.ref, ask.template.user, shares=shares)
        except OSError as error:
            return self._executor.starts.refused(error)
        return await self._provide(ask.ref, ask.template, slot)

    async def _provide(
        self, ref: AttemptRef, template: TaskTemplate, slot: Workspace
    ) -> Ended | None:
        on_detail = partial(self._on_detail, ref)
        if template.bundle is not None:
            brought = await self._fetcher.fetch(
                template.bundle,
                slot.workdir,
                template.each_line,
                ref.index,
                owner=slot.owner,
                user=template.user,
                on_detail=on_detail,
            )
            if isinstance(brought, Ended):
                return brought
            slot.line = brought
        ended = None
        if template.calls is not None:
            ended = await self._fetcher.bring_call(
                template.calls, slot, keeps=leaves_directory(template), on_detail=on_detail
            )
        if ended is None and template.environment is not None:
            ended = await self._builder.provide(ref, template, template.environment, slot)
        if ended is None and is_cloned(template):
            ended = await self._executor.preloading.provide(ref, template)
        return ended
