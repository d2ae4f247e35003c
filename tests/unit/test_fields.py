"""Fields from outside: what is wrong is said by the field's name and the kind of its value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tidegauge import fields
from tidegauge.fields import FieldError

READERS: dict[str, tuple[Callable[[fields.Fields, str], Any], Any]] = {
    "text": (fields.text, "a"),
    "text_or_none": (fields.text_or_none, "a"),
    "texts": (fields.texts, ["a"]),
    "flag": (fields.flag, True),
    "whole": (fields.whole, 3),
    "required_whole": (fields.required_whole, 3),
    "number": (fields.number, 0.5),
    "number_from_0": (fields.number_from_0, 0.5),
    "mapping": (fields.mapping, {"a": 1}),
    "objects": (fields.objects, [{"a": 1}]),
}
"""Each reader, and a value of its kind."""

VALUES: tuple[Any, ...] = ("SECRET", 3, 0.5, True, ["SECRET"], [{"SECRET": 1}], {"SECRET": "x"})


@pytest.mark.parametrize("name", READERS)
def test_each_takes_its_kind_and_names_the_field_of_any_other(name: str) -> None:
    read, right = READERS[name]
    assert read({"asked": right}, "asked") in (right, tuple(right) if name == "texts" else right)
    said = []
    for value in VALUES:
        try:
            read({"asked": value}, "asked")
        except FieldError as error:
            said.append(str(error))
    assert len(said) >= len(VALUES) - 3
    assert all(one.startswith("asked") and "use " in one for one in said)
    assert "SECRET" not in "".join(said)


@pytest.mark.parametrize(
    ("read", "absent"),
    [
        (fields.text_or_none, None),
        (fields.texts, ()),
        (fields.flag, None),
        (fields.whole, None),
        (fields.number, None),
        (fields.number_from_0, None),
    ],
)
def test_null_means_not_given(read: Callable[..., Any], absent: object) -> None:
    assert read({}, "asked") == absent
    assert read({"asked": None}, "asked") == absent


@pytest.mark.parametrize("read", [fields.text, fields.required_whole])
def test_what_must_be_there_is_missing(read: Callable[..., Any]) -> None:
    with pytest.raises(FieldError, match=r"^asked is missing$"):
        read({}, "asked")


@pytest.mark.parametrize(
    ("read", "value", "limits"),
    [
        (fields.whole, -1, "at least 0"),
        (partial(fields.whole, least=1), 0, "at least 1"),
        (partial(fields.whole, most=5), 6, "0 to 5"),
        (fields.number_from_0, -0.5, "at least 0"),
        (partial(fields.number_from_0, most=1), 1.5, "0 to 1"),
    ],
)
def test_a_number_out_of_range_is_said_with_its_range(
    read: Callable[..., Any], value: float, limits: str
) -> None:
    with pytest.raises(FieldError, match=rf"^asked is {value}; use {limits}$"):
        read({"asked": value}, "asked")


@pytest.mark.parametrize("given", ["0" * 16, "A" * 16, "ff", "0x" + "f" * 14, "f" * 15 + "\n"])
def test_what_is_no_id_is_refused(given: str) -> None:
    with pytest.raises(FieldError, match=r"^asked is no id; use 16 hexadecimal digits"):
        fields.identifier({"asked": given}, "asked", 16)
