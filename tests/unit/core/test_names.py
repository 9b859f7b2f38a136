"""Names are paths. docs/design/semantics.md#jobs, Spiral 1 by name;
docs/design/semantics.md#jobs.
"""

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris_core.errors import Refused
from iris_core.names import MAX_COMPONENT, MAX_LEVELS, JobName, to_token

components = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,12}", fullmatch=True)
paths = st.lists(components, min_size=1, max_size=MAX_LEVELS).map(
    lambda parts: "/" + "/".join(parts)
)


def test_job_name_depth():
    assert JobName.from_string("/train").depth == 1
    assert JobName.from_string("/train/eval").depth == 2
    assert JobName.from_string("/train/eval/score").depth == 3
    # Task depth equals parent job depth
    assert JobName.from_string("/train/0").depth == 1
    assert JobName.from_string("/train/eval/0").depth == 2


def test_a_root_has_no_parent():
    root = JobName.from_string("/train")
    assert root.parent is None
    assert root.namespace == "train"


def test_a_child_and_a_task_have_their_job_for_a_parent():
    train = JobName.from_string("/train")
    eval_ = JobName.from_string("/train/eval")
    assert eval_.parent == train
    assert train.task(7).parent == train
    assert train.task(7).is_task
    assert not eval_.is_task
    assert str(eval_.task(3)) == "/train/eval/3"
    assert eval_.task(3).namespace == "train"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "train",
        "/",
        "//",
        "/train/",
        "/-x",
        "/.x",
        "/_x",
        "/a b",
        "/ä",
        "/a\n",
        "/a\0",
        "/0",
        "/0/a",
        "/..",
        "/a/../b",
    ],
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(Refused):
        JobName.from_string(text)


@pytest.mark.parametrize("text", ["/a/0", "/train/eval/17"])
def test_a_job_is_not_called_like_a_task(text):
    assert JobName.from_string(text).is_task
    with pytest.raises(Refused, match="not all digits"):
        JobName.job(text)


def test_a_part_is_as_long_as_it_may_be_and_no_longer():
    assert JobName.from_string("/" + "x" * MAX_COMPONENT)
    with pytest.raises(Refused, match="at most 63 characters"):
        JobName.from_string("/" + "x" * (MAX_COMPONENT + 1))


def test_a_name_is_as_deep_as_it_may_be_and_no_deeper():
    deep = JobName.from_string("/a" * MAX_LEVELS)
    assert deep.depth == MAX_LEVELS
    assert deep.task(0).depth == MAX_LEVELS
    assert JobName.from_string(str(deep.task(0))) == deep.task(0)
    with pytest.raises(Refused, match="at most 16 levels"):
        JobName.from_string(f"{deep}/b")


@given(paths)
def test_a_name_reads_as_it_is_written(text):
    assert str(JobName.from_string(text)) == text


@given(paths, st.integers(0, 9999))
def test_a_task_has_its_jobs_depth(text, index):
    name = JobName.job(text)
    assert name.task(index).depth == name.depth
    assert JobName.from_string(str(name.task(index))) == name.task(index)


@given(st.text(min_size=1))
def test_a_token_leads_back_to_its_text(text):
    assert unquote(to_token(text).replace("=", "%"), errors="strict") == text


@given(st.text())
def test_a_token_is_one_harmless_word(text):
    token = to_token(text)
    assert token
    assert not set(token) & set(" .*>/\\\t\n\0")


@given(st.text(), st.text())
@example("=", "")
@example("=", "=3D")
@example("a b", "a=20b")
def test_two_texts_never_share_a_token(one, other):
    assert (to_token(one) == to_token(other)) == (one == other)
