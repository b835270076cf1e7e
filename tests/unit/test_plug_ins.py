from __future__ import annotations

from abc import ABC, abstractmethod

import pytest

from millwheel.errors import SetupError
from millwheel.plug_ins import require, take_over


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
        f"{__name__}.Contract, whose docstrings say what is called and when"
    )


def test_optional_members_win_over_defaults_and_missing_ones_do_not() -> None:
    class Wrapper(Contract):
        def go(self) -> None: ...

    wrapper = Wrapper()
    take_over(wrapper, object(), "pace")
    assert wrapper.pace == 5
    take_over(wrapper, Goes(), "pace")
    assert wrapper.pace == 7
