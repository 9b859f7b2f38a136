"""Has the launcher confine what it starts, as far as this host allows.

Out of scope: how tasks are to be confined (isolation), and doing it (the launcher).
"""

from __future__ import annotations

import asyncio

from msgspec import structs

from iris_service.settings import BadSetting
from iris_worker.attempt.slots.isolation import Isolated, Isolation, allow_task_users, summary
from iris_worker.attempt.slots.workspaces import Workspaces
from iris_worker.launcher.client import LauncherClient, LauncherGone
from iris_worker.launcher.records.records import Confine, Confined, HoldFile

_CONFINE_S = 30.0


class Confinement:
    """That of one worker's tasks."""

    def __init__(self, launcher: LauncherClient, isolation: Isolation) -> None:
        self._launcher = launcher
        self._isolation = isolation
        self._confined: asyncio.Future[Confined] = asyncio.get_running_loop().create_future()

    async def begin(self, slots: Workspaces) -> Isolated:
        """Have tasks confined from now on; returns how they are. Raises LauncherGone,
        BadSetting.
        """
        isolation = self._isolation
        wanted = structs.replace(self._isolation.wanted, tokens=slots.tokens)
        if isolation.users_lock >= 0:
            self._launcher.send_with(HoldFile(), [isolation.users_lock])
        confined = await self._try(wanted)
        trouble = confined.error or isolation.trouble
        if trouble and isolation.required:
            raise BadSetting(f"[worker] sandbox: it is required, and cannot be made: {trouble}")
        if trouble and wanted.bubblewrap:
            confined = await self._try(structs.replace(wanted, bubblewrap=()))
        if isolation.changes_user and (trouble or not wanted.bubblewrap):
            allow_task_users(slots.attempts)
        return summary(isolation, trouble, confined.unscoped)

    async def _try(self, wanted: Confine) -> Confined:
        self._confined = asyncio.get_running_loop().create_future()
        self._launcher.send_now(wanted)
        try:
            async with asyncio.timeout(_CONFINE_S):
                return await self._confined
        except TimeoutError:
            raise LauncherGone("the launcher does not answer how it confines tasks") from None

    def on_confined(self, confined: Confined) -> None:
        self._confined.set_result(confined)
