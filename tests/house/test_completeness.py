"""What is declared is complete: a field of a job has an option, a flag and a limit, a view an
answer and a caller, a command a subject, a row and a sender, an effect a cause and a reader.
`test_spread` shows what each costs.
"""

from typing import get_args

import msgspec

from iris.cli.commands.run.run import run
from iris.client.options.jobs import JobOptions, job_spec
from iris_core.messages.gateway_state import SUBJECT_OF, UserCommand
from iris_core.spec.jobs import JobSpec
from iris_core.views import queries as view_queries
from iris_core.views.queries import PageQuery, ViewQuery
from iris_gateway.dashboard.snippets import options_of
from iris_state.commands.table import COMMANDS
from iris_state.effects.kinds import Effect
from iris_state.records.changes import Change
from iris_state.records.facts import PublicFact
from iris_state.views import KINDS
from tests.house.repository import texts
from tests.unit.core.test_spec_facts import ELSEWHERE, OTHERS

IN_A_FILE = {"each_line", "environment"}
"""Their options name files or images; the client makes the field of those."""


def product(below: str = "") -> str:
    """The source of the product, but for where effects are declared."""
    return "".join(
        text
        for path, text in texts().items()
        if path.suffix == ".py"
        and path.parts[0] in {"libs", "services"}
        and path.as_posix().startswith(below)
        if path.parts[-2:] != ("effects", "kinds.py")
    )


def test_each_field_of_a_job_is_an_option_that_is_read_back():
    plain = JobSpec(name="/a", command=("true",))
    fields = JobSpec.__struct_fields__
    lost = []
    for field in [one for one in fields if one not in ELSEWHERE | IN_A_FILE]:
        spec = msgspec.structs.replace(plain, **{field: OTHERS[field]})
        options = options_of(spec)
        if getattr(job_spec(["true"], {**options}), field) == getattr(plain, field):  # type: ignore[typeddict-item]
            lost.append(field)
    assert lost == []


def test_each_option_of_a_job_is_a_flag_of_run():
    made_by_the_client = {"bundle", "packages"}
    assert {*JobOptions.__annotations__} - {one.name for one in run.params} == made_by_the_client


def test_each_view_is_answered_and_asked():
    views = {
        kind
        for kind in vars(view_queries).values()
        if isinstance(kind, type) and issubclass(kind, ViewQuery)
    }
    views -= {ViewQuery, PageQuery}
    assert views - {*KINDS.values()} == set()
    gateway = product("services/gateway")
    assert [kind.__name__ for kind in views if kind.__name__ not in gateway] == []


def test_each_command_has_a_subject_and_a_row_and_is_sent():
    commands = {*get_args(UserCommand)}
    assert SUBJECT_OF.keys() == COMMANDS.keys() == commands
    gateway = product("services/gateway")
    assert [kind.__name__ for kind in commands if f"{kind.__name__}(" not in gateway] == []


def test_each_effect_is_made_and_carried_out():
    committed = {*get_args(Change), *get_args(PublicFact)}
    effects = [kind.__name__ for kind in get_args(Effect) if kind not in committed]
    source = product()
    assert [name for name in effects if f"{name}(" not in source] == []
    assert [
        name
        for name in effects
        if f"of({name})" not in source and f"isinstance(one, {name})" not in source
    ] == []
