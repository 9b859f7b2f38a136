"""Chooses workers in as few domains as possible of levels of the topology that a gang prefers.
Pure.

Of the outermost level the number of domains is the least there can be: those with the most workers
are taken first, and the last one is the smallest that is enough. Within each the same holds for the
next level.
Source: docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iris_scheduler.mirror.columns import Codes


def nearest(slots: Sequence[int], wanted: int, near: Sequence[Codes]) -> list[int]:
    """So many of the workers, by domain, and within one in the order given; all when there are no
    more.

    ``near``: the domain of each worker on each level, outermost level first.
    """
    if not near:
        return list(slots[:wanted])
    domains = _by_domain(slots, near[0])
    large = sorted(domains, key=lambda code: (-len(domains[code]), code))
    taken = dict[int, int]()
    left = wanted
    for at, code in enumerate(large):
        if len(domains[code]) >= left:
            enough = (other for other in large[at:] if len(domains[other]) >= left)
            taken[min(enough, key=lambda other: (len(domains[other]), other))] = left
            break
        taken[code] = len(domains[code])
        left -= len(domains[code])
    return [
        slot for code in sorted(taken) for slot in nearest(domains[code], taken[code], near[1:])
    ]


def in_domains(slots: Sequence[int], near: Sequence[Codes]) -> list[int]:
    """The workers by domain, and within one in the order given."""
    return sorted(slots, key=lambda slot: [int(level[slot]) for level in near])


def domains_needed(groups: Codes, domains: Codes, size: int, number: int) -> Codes:
    """In how many domains ``size`` workers of each group are at least.

    Args:
        groups, domains: of each worker. number: how many groups there are.
    """
    width = int(domains.max(initial=0)) + 1
    pairs, counts = np.unique(groups * width + domains, return_counts=True)
    largest_first = np.lexsort((-counts, pairs // width))
    of = (pairs // width)[largest_first]
    counts = counts[largest_first]
    before = np.cumsum(counts) - counts
    before -= before[np.searchsorted(of, of)]
    return np.bincount(of[before < size], minlength=number)


def _by_domain(slots: Sequence[int], level: Codes) -> dict[int, list[int]]:
    domains: dict[int, list[int]] = {}
    for slot, code in zip(slots, level.take(slots).tolist(), strict=True):
        domains.setdefault(code, []).append(slot)
    return domains
