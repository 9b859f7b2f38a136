"""One point of a sweep: fits a line by gradient descent, with the learning rate and the momentum of
this task.

Prints the loss and the point. A rate that is too large diverges, and then the task fails.
"""

import itertools
import math
import os
import sys

GRID = list(itertools.product((0.003, 0.03, 0.3, 3.0), (0.0, 0.5, 0.9)))
POINTS = [(step / 20, 3 * step / 20 - 1) for step in range(20)]


def loss_of(point: tuple[float, float], steps: int = 200) -> float:
    """The mean squared error after training; OverflowError when it diverges."""
    rate, momentum = point
    weight = bias = speed_of_weight = speed_of_bias = 0.0
    for _ in range(steps):
        errors = [weight * x + bias - y for x, y in POINTS]
        slope = sum(error * x for error, (x, _) in zip(errors, POINTS, strict=True)) / len(POINTS)
        speed_of_weight = momentum * speed_of_weight - rate * slope
        speed_of_bias = momentum * speed_of_bias - rate * sum(errors) / len(POINTS)
        weight, bias = weight + speed_of_weight, bias + speed_of_bias
    loss = sum((weight * x + bias - y) ** 2 for x, y in POINTS) / len(POINTS)
    if not math.isfinite(loss) or loss > 1e6:
        raise OverflowError(f"{point} diverges")
    return loss


if __name__ == "__main__":
    mine = GRID[int(os.environ["IRIS_TASK_INDEX"])]
    try:
        print(f"{loss_of(mine):.2e} rate={mine[0]} momentum={mine[1]}")
    except OverflowError as error:
        sys.exit(str(error))
