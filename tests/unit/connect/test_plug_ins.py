from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import EntryPoint

import pytest

from millwheel.connect import plug_ins
from millwheel.connect.plug_ins import made_by, names_in, require, take_over
from millwheel.errors import SetupError


class Contract(ABC):
    pace = 5

    @abstractmethod
    def go(self) -> None: ...


class Goes:
    pace = 7

    def go(self) -> None: ...


def test_what_has_all_that_is_necessary_is_accepted() -> None:
    require(Goes(), Contract, "pace")


def test_what_lacks_something_is_refused_with_class_member_and_fix() -> None:
    with pytest.raises(SetupError) as caught:
        require(object(), Contract, "pace")
    assert str(caught.value) == (
        "builtins.object has no go and no pace, which each Contract needs; derive the class from "
        "millwheel.plugins.Contract, whose docstrings say what is called and when"
    )


def test_optional_members_win_over_defaults_and_missing_ones_do_not() -> None:
    class Wrapper(Contract):
        def go(self) -> None: ...

    wrapper = Wrapper()
    take_over(wrapper, object(), "pace")
    assert wrapper.pace == 5
    take_over(wrapper, Goes(), "pace")
    assert wrapper.pace == 7


def test_a_kind_is_made_by_the_package_that_registered_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {
        "queue": EntryPoint("queue", "json:dumps", "g"),
        "broken": EntryPoint("broken", "no_such:f", "g"),
    }
    monkeypatch.setattr(
        plug_ins,
        "entry_points",
        lambda group, name=None: [each for each in installed.values() if name in (None, each.name)],
    )
    assert names_in("g") == {"queue", "broken"}
    assert made_by("g", "sink", "queue", list, {"a": 1}) == '{"a": 1}'
    with pytest.raises(
        SetupError, match=r"the sink 'broken' \(no_such:f\) cannot be loaded: ModuleNotFoundError"
    ):
        made_by("g", "sink", "broken", list)
    with pytest.raises(ValueError, match="there is no sink 'quue'; did you mean 'queue'"):
        made_by("g", "sink", "quue", lambda: ["files", "queue"])
