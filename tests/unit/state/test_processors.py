"""A process detects from kernel counters whether others need its processor."""

from iris_state.processors import PERIOD_S, Processors


class Kernel:
    """A clock, and what the kernel has counted of a process by then."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.times_ns: tuple[int, int] | None = (0, 0)

    def after(self, ran_ns: int, waited_ns: int) -> None:
        self.now_s += PERIOD_S
        ran, waited = self.times_ns or (0, 0)
        self.times_ns = (ran + ran_ns, waited + waited_ns)


def looking_at(kernel: Kernel) -> Processors:
    return Processors(lambda: kernel.now_s, lambda: kernel.times_ns)


def test_processors_are_short_while_the_process_waits_for_one():
    kernel = Kernel()
    processors = looking_at(kernel)
    found = []
    for ran_ns, waited_ns in ((100, 1), (100, 50), (10, 100), (100, 5), (0, 0)):
        kernel.after(ran_ns, waited_ns)
        found.append(processors.are_short())
    assert found == [False, True, True, False, False]


def test_one_look_holds_for_a_while():
    kernel = Kernel()
    processors = looking_at(kernel)
    kernel.times_ns = (0, 1000)
    assert not processors.are_short()
    kernel.now_s += PERIOD_S
    assert processors.are_short()


def test_where_the_kernel_does_not_count_they_are_taken_to_be_short():
    kernel = Kernel()
    kernel.times_ns = None
    processors = looking_at(kernel)
    kernel.now_s += PERIOD_S
    assert processors.are_short()


def test_this_kernel_is_asked():
    now_s = iter(range(10))
    assert Processors(lambda: float(next(now_s))).are_short() in (False, True)
