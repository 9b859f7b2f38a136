"""The socket of a template."""

import os

from iris_worker.launcher.records.records import StartTemplate
from iris_worker.launcher.templates.template import RunningTemplate, control


def test_what_a_template_says_is_signed_from_its_first_word_on():
    mine, its = control()
    with mine, its:
        its.send(b"ready")
        template = RunningTemplate(StartTemplate("1", 0, "0/a", (), {}, (), bare="bare"), 1, mine, 0.0)
        assert next(template.messages()) == (b"ready", os.getpid())
