"""Which targets are told of what: by the rules of jobs and by subscriptions.

Reads the records only; `JobWatch` writes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from iris_core.spec.notify import TimedWord, timed
from iris_core.spec.projects import upwards
from iris_notifier.records import SubscriptionRecord, TargetRecord, WatchedJob, target_key
from iris_notifier.store import RecordStore

_VAGUE = "ended"
"""A target that is told of an end in another word is not told of it in this one too."""


class OwnedRule(NamedTuple):
    """A rule, and whose target its name means."""

    owner: str
    to: str
    on: tuple[str, ...]


class MatchedTarget(NamedTuple):
    """A target, and the word in which it is told."""

    target: TargetRecord
    word: str


class Matching:
    """Finds who is told of a job."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._as_of = -1
        self._of_jobs: dict[str, list[SubscriptionRecord]] = {}
        self._of_users: dict[str, list[SubscriptionRecord]] = {}
        self._of_projects: dict[str, list[SubscriptionRecord]] = {}

    def target(self, user: str, name: str) -> TargetRecord | None:
        """The target that ``user`` means: an own one, else a shared one."""
        own = self._store.find(target_key(user, name), TargetRecord)
        if own is not None:
            return own
        others = self._store.all(TargetRecord)
        return next((one for one in others if one.shared and one.name == name), None)

    def rules(
        self, job: str, user: str, project: str, watched: WatchedJob | None
    ) -> list[OwnedRule]:
        """The rules of a job's specification, and those of subscriptions to it, to all jobs of its
        user, and to its project and those above.
        """
        if self._as_of != self._store.changes:
            self._index()
        own = () if watched is None else watched.rules
        found = [OwnedRule(user, rule.to, rule.on) for rule in own]
        meant = [*self._of_jobs.get(job, ()), *self._of_users.get(user, ())]
        for path in upwards(project) if self._of_projects else ():
            meant += self._of_projects.get(path, ())
        for one in meant:
            found.append(OwnedRule(one.user, one.to, one.on))
        return found

    def matched(self, rules: Iterable[OwnedRule], words: Iterable[str]) -> list[MatchedTarget]:
        """The targets that are told when these words are true, each once."""
        true = set(words)
        found: dict[str, MatchedTarget] = {}
        for rule in rules:
            heard = [word for word in rule.on if word in true]
            target = self.target(rule.owner, rule.to) if heard else None
            if target is None:
                continue
            word = next((one for one in heard if one != _VAGUE), heard[0])
            before = found.get(target.key)
            if before is None or before.word == _VAGUE:
                found[target.key] = MatchedTarget(target, word)
        return list(found.values())

    def _index(self) -> None:
        of_jobs: defaultdict[str, list[SubscriptionRecord]] = defaultdict(list)
        of_users: defaultdict[str, list[SubscriptionRecord]] = defaultdict(list)
        of_projects: defaultdict[str, list[SubscriptionRecord]] = defaultdict(list)
        for one in self._store.all(SubscriptionRecord):
            if one.job:
                of_jobs[one.job].append(one)
            elif one.project:
                of_projects[one.project].append(one)
            else:
                of_users[one.user].append(one)
        self._of_jobs = dict(of_jobs)
        self._of_users = dict(of_users)
        self._of_projects = dict(of_projects)
        self._as_of = self._store.changes


def unreported(rules: Iterable[OwnedRule], watched: WatchedJob) -> list[TimedWord]:
    """The words of time of which nobody was told yet, each once."""
    words = dict.fromkeys(word for rule in rules for word in rule.on)
    return [one for one in timed(list(words)) if one.word not in watched.reported]
