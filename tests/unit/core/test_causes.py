from iris_core.views.causes import failure_groups, last_line


def failed(index, stderr="", error=None):
    attempts = [{"stderr_tail": stderr, "error": error}] if stderr or error else []
    return {
        "job": "/sweep",
        "id": f"j7/{index}",
        "index": index,
        "error": error,
        "exit_code": 1,
        "attempts": attempts,
    }


def test_tasks_with_one_last_line_but_for_its_numbers_are_one_group():
    tasks = [
        failed(5, "Traceback\nRuntimeError: loss is nan at step 12"),
        failed(7, "KeyError: 'x'"),
    ]
    tasks += [
        failed(index, f"RuntimeError: loss is nan at step {index}") for index in range(40, 45)
    ]
    groups = failure_groups(tasks)
    assert [str(group) for group in groups] == [
        "6 x RuntimeError: loss is nan at step 12 (tasks 5, 40, 41, 42, 43, ...)",
        "1 x KeyError: 'x' (task 7)",
    ]
    assert (groups[0].task, groups[0].last_lines) == (
        "j7/5",
        ["Traceback", "RuntimeError: loss is nan at step 12"],
    )


def test_a_task_that_printed_nothing_says_why_it_ended():
    assert [last_line(failed(0)), last_line(failed(0, error="its worker was lost"))] == [
        "exit code 1",
        "its worker was lost",
    ]


def test_tasks_that_printed_nothing_are_grouped_by_their_exit_codes():
    codes = {0: 1, 1: 2, 2: 1, 3: None}
    tasks = [
        {
            **failed(index),
            "exit_code": code,
            "attempts": [{"exit_code": code, "error": f"ran for {index} s"}],
        }
        for index, code in codes.items()
    ]
    assert [group.indexes for group in failure_groups(tasks)] == [[0, 2], [1], [3]]
    assert [str(group) for group in failure_groups([failed(0), {**failed(1), "exit_code": 2}])] == [
        "1 x exit code 1 (task 0)",
        "1 x exit code 2 (task 1)",
    ]
