"""The socket of a template."""

import os

from iris_worker.launcher.kernel.event_loop import DelayedCall
from iris_worker.launcher.records.records import StartTemplate
from iris_worker.launcher.templates.template import RunningTemplate, control


def test_what_a_template_says_is_signed_from_its_first_word_on():
    mine, its = control()
    with mine, its:
        its.send(b"ready")
        request = StartTemplate("1", 0, "0/a", (), {}, (), bare="bare")
        template = RunningTemplate(request, 1, mine, 0.0, DelayedCall(0.0, int))
        assert next(template.messages()) == (b"ready", os.getpid())
