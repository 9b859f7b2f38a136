"""The process of a service: how it stops and how it fails."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from iris_service.version import VERSION

pytestmark = pytest.mark.integration

PROGRAM = """
    import asyncio
    import msgspec
    from iris_service.run import Service, run_service

    class Own(msgspec.Struct):
        retry_for_s: float = 1.0

    async def main(service: Service[Own]) -> None:
        print("up", flush=True)
        {body}

    run_service("state", Own, main)
"""


def start(body: str, *argv: str, **environ: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM).format(body=body)
    return subprocess.Popen(
        [sys.executable, "-c", program, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "IRIS_RUN_LOG_STYLE": "json", **environ},
    )


def play(
    body: str, *argv: str, signals: tuple[signal.Signals, ...] = (), **environ: str
) -> tuple[int, str, str]:
    process = start(body, *argv, **environ)
    assert process.stdout is not None
    first = process.stdout.readline() if signals else ""
    for number in signals:
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, first + out, err


def test_term_lets_the_service_drain_and_ends_with_zero():
    code, out, _ = play(
        "service.announce(); await service.stop.wait(); print('drained')", signals=(signal.SIGTERM,)
    )
    assert (code, out) == (0, "up\ndrained\n")


def test_draining_ends_when_its_time_is_over():
    body = "service.announce(); await service.stop.wait(); await asyncio.Event().wait()"
    code, _, err = play(body, signals=(signal.SIGINT,), IRIS_RUN_DRAIN_S="0.05")
    assert code == 1
    assert "ended before it had drained" in err


def test_a_service_stopped_while_it_connects_ends_at_once_with_zero():
    given = {
        "IRIS_NATS_URL": "nats://127.0.0.1:1",
        "IRIS_NATS_RETRY_FOR_S": "100",
        "IRIS_RUN_DRAIN_S": "100",
    }
    code, out, _ = play("await service.connect()", signals=(signal.SIGTERM,), **given)
    assert (code, out) == (0, "up\n")


@pytest.mark.parametrize(
    ("main", "words"),
    [
        ("raise ValueError('broken ledger')", "broken ledger"),
        ("service.spawn(asyncio.sleep('x')); await asyncio.Event().wait()", "TypeError"),
        (
            "asyncio.get_running_loop().call_soon(lambda: 1 / 0); await asyncio.Event().wait()",
            "ZeroDivisionError",
        ),
    ],
    ids=["main", "task", "callback"],
)
def test_an_exception_ends_the_process(main: str, words: str):
    code, _, err = play(main)
    assert (code, words in err) == (1, True)


def test_a_process_whose_work_another_has_taken_over_ends_without_alarm():
    code, _, err = play(
        "from iris_bus.contract import Fenced; raise Fenced('the stream ends at 7')"
    )
    assert code == 1
    assert "another process has taken over; ending: the stream ends at 7" in err
    assert "Traceback" not in err
    assert "critical" not in err.lower()


def test_a_bus_that_is_not_there_ends_the_process_and_says_so():
    code, _, err = play(
        "await service.connect()", IRIS_NATS_URL="nats://127.0.0.1:1", IRIS_NATS_RETRY_FOR_S="0.3"
    )
    assert code == 1
    assert "cannot connect to NATS" in err


def test_a_wrong_setting_ends_it_with_two_and_no_traceback():
    code, _, err = play("pass", IRIS_STATE_RETRY_FOR="1")
    assert code == 2
    assert (
        err == "iris state: environment IRIS_STATE_RETRY_FOR: [state] has no key 'retry_for'; "
        f"did you mean 'retry_for_s'? Release {VERSION} knows none of that name\n"
    )


def test_a_setting_found_wrong_only_when_it_is_used_ends_it_the_same_way():
    body = "from iris_service.settings import BadSetting; raise BadSetting('[state] key: no such file')"
    code, _, err = play(body)

    assert (code, "Traceback" in err) == (2, False)
    assert "[state] key: no such file" in err


def test_it_serves_its_metrics_on_a_free_port_where_it_is_told_to():
    body = "; ".join(
        [
            "from iris_service.telemetry import new_registry",
            "import urllib.request",
            "port = await service.serve_metrics(new_registry())",
            "page = await asyncio.to_thread(urllib.request.urlopen, f'http://127.0.0.1:{port}/metrics')",
            "print(page.status, b'process_cpu' in page.read())",
        ]
    )
    code, out, _ = play(body, IRIS_RUN_METRICS="127.0.0.1:0")
    assert (code, out) == (0, "up\n200 True\n")


def test_it_shows_its_settings_with_their_origins():
    code, out, _ = play("pass", "--show-config", "--set", "state.retry_for_s=2")
    assert code == 0
    assert out.startswith("[state]\nretry_for_s = 2.0  # command line\n\n[nats]\nurl = ")


def test_a_service_with_higher_limits_raises_those_of_streams(nats_url: str):
    body = "; ".join(
        [
            "connection = await service.connect()",
            "await connection.streams.ensure()",
            "told = await connection.bus.request('$JS.API.STREAM.INFO.IRIS_EVENTS', b'', timeout=30)",
            "config = msgspec.json.decode(told.data)['config']",
            "print(config['max_age'] // 10**9, config['max_bytes'])",
            "await connection.close()",
        ]
    )
    before = play(body, IRIS_NATS_URL=nats_url)
    after = play(
        body,
        "--set",
        "nats.events_days=5",
        IRIS_NATS_URL=nats_url,
        IRIS_NATS_EVENTS_BYTES="8589938688",
    )

    assert [before[:2], after[:2]] == [
        (0, "up\n259200 8589934592\n"),
        (0, "up\n432000 8589938688\n"),
    ]
