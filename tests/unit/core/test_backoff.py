from iris_core.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_success():
    backoff = Backoff(0.1, 0.5)
    assert [backoff.next_s() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]

    backoff.reset()
    assert (backoff.pause_s, backoff.next_s(), backoff.pause_s) == (0.1, 0.1, 0.2)
