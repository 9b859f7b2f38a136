"""The same sweep from Python: every point for a few steps, then the best three for many."""

from pathlib import Path

from train import GRID, loss_of

from iris import Client


def short(point: tuple[float, float]) -> float:
    return loss_of(point, steps=20)


def long(point: tuple[float, float]) -> float:
    return loss_of(point, steps=2000)


here = Path(__file__).parent
with Client() as client:
    tried = dict(zip(GRID, client.map(short, GRID, workdir=here, cpu=0.5), strict=True))
    good = sorted(
        (point for point in GRID if not tried[point].exception()),
        key=lambda point: tried[point].result(),
    )
    found = client.map(long, good[:3], workdir=here, cpu=0.5).results()
loss, (rate, momentum) = min(zip(found, good, strict=False))
print(f"the best of {len(GRID)}: loss {loss:.2e} with rate={rate} momentum={momentum}")
