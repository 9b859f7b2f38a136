"""What is lost is named to the last job, wherever it is said."""

from iris_state.admin import words

MANY = [f"/job-{number}" for number in range(183)]


def test_every_name_is_said_where_no_file_has_them():
    assert words.names(MANY) == ", ".join(MANY)
    assert words.names([]) == "none"


def test_many_names_are_shortened_only_beside_the_file_that_has_them_all():
    said = words.names(MANY, "losses.txt")
    assert said.endswith("/job-19 and 163 more; losses.txt names all")
    assert words.names(MANY[:20], "losses.txt") == ", ".join(MANY[:20])
