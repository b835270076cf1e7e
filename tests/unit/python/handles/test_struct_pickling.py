"""Classes that msgspec knows travel to workers by value."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import pytest

_CODE = textwrap.dedent(
    """
    import dataclasses, enum, pickle, sys, typing, msgspec
    from millwheel.python.handles.struct_pickling import dumps

    class Base(msgspec.Struct):
        a: int = 1

    class Struct(Base, rename="camel", tag="s"):
        n_f: int = 0
        items: list[int] = []

        def twice(self):
            return Struct(self.a, self.n_f * 2)

        def __post_init__(self):
            if self.n_f < 0:
                raise ValueError("negative")

    class Keys(msgspec.Struct, kw_only=True, frozen=True, array_like=True):
        n: int
        m: str = "x"

    @dataclasses.dataclass
    class Data:
        keys: typing.Optional[Keys] = None

    class Named(typing.NamedTuple):
        n: int = 0

    class Typed(typing.TypedDict):
        n: int

    class Color(enum.Enum):
        RED = "red"

    kinds = {"Struct": Struct, "Keys": Keys, "Data": Data, "Named": Named, "Typed": Typed,
      "Color": Color}
    for kind in kinds.values():
        msgspec.msgpack.Decoder(kind)
    sys.stdout.buffer.write(dumps(kinds))
    """
)


@pytest.fixture(scope="module")
def kinds() -> dict[str, type]:
    found = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True)
    loaded: dict[str, type] = pickle.loads(found.stdout)
    return loaded


def test_a_struct_has_its_fields_its_methods_and_its_base(kinds: dict[str, type]) -> None:
    import msgspec

    made = kinds["Struct"](2, 3)
    assert msgspec.json.encode(made) == b'{"type":"s","a":2,"nF":3,"items":[]}'
    assert made.twice() == kinds["Struct"](2, 6)
    assert [each.name for each in msgspec.structs.fields(kinds["Struct"])] == ["a", "n_f", "items"]
    with pytest.raises(ValueError, match="negative"):
        kinds["Struct"](1, -1)


def test_its_settings_travel_with_it(kinds: dict[str, type]) -> None:
    import msgspec

    made = kinds["Keys"](n=3)
    assert msgspec.json.encode(made) == b'[3,"x"]'
    with pytest.raises(TypeError):
        kinds["Keys"](3)
    with pytest.raises(AttributeError):
        made.n = 4


@pytest.mark.parametrize("name", ["Data", "Named", "Typed", "Color"])
def test_classes_that_msgspec_has_looked_at_travel(kinds: dict[str, type], name: str) -> None:
    import msgspec

    value = {"Data": {"keys": [1, "a"]}, "Named": (1,), "Typed": {"n": 1}, "Color": "red"}[name]
    assert msgspec.to_builtins(msgspec.convert(value, kinds[name])) == (
        {"keys": [1, "a"]} if name == "Data" else value
    )
