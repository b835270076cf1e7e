"""How records get their keys, and how keys are divided over instances: values of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millwheel.core.model.keys import NULL, Key

INSTANCE = "__instance__"
"""The field of the number of an instance in the records of partial computations."""
EVERYTHING: Key = "all"
"""The key of all records of ``key: all``."""


class KeyKind(Enum):
    """The source of a record's key for a consumer."""

    FIELD = "field"
    FIELDS = "fields"
    FUNCTION = "function"
    EXPRESSIONS = "expressions"
    ALL = "all"  # one key, EVERYTHING, for all records
    RECORD = "record"  # the key the producer gave; for a source stream without one, the partition


class Divided(Enum):
    """The rule by which the keys of a computation are divided over instances, if any are:
    ``scatter``, ``auto``, or the name of a grouping (core/grouping/catalogue.py)."""

    ALL = "scatter"
    """All of them, by the numbers of records."""
    HOT = "auto"
    """Keys with many of the records; the others go to instance 0."""
    PKG = "pkg"
    DKG = "dkg"
    NAG = "nag"
    DAG = "dag"
    TAG = "tag"
    D_CHOICES = "d-choices"
    W_CHOICES = "w-choices"
    SHUFFLE = "shuffle"

    @property
    def by_tables(self) -> bool:
        """Whether sources divide keys, by tables of epochs."""
        return self is not Divided.ALL

    @property
    def by_slots(self) -> bool:
        """Whether an instance is a slot: the records of all its keys are in one shard."""
        return self.by_tables and self is not Divided.HOT


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A key extractor. ``names`` holds one field, several, or the one ``module:function``; with
    ``texts``, the expressions that make the key, it holds the names of their values in results.

    ``nulls``: a null is a group of its own, whose key is NULL; elsewhere such a record has no key.
    ``instances``: above 1 the key is divided, and has the number of an instance as its last part;
    ``divided``: which keys have more than one. ``partitions``: above 0 the key is the partition of
    a dictionary that the one field belongs to. ``copies``: above 0 it is the key of one of so many
    copies of a table, by the key that the producer gave."""

    kind: KeyKind
    names: tuple[str, ...] = ()
    instances: int = 1
    partitions: int = 0
    divided: Divided = Divided.ALL
    texts: tuple[str, ...] = ()
    nulls: bool = False
    copies: int = 0

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that stand for the key in results, () where it has no names for them."""
        plain = self.names if self.plain or self.kind is KeyKind.EXPRESSIONS else ()
        return (*plain, INSTANCE) if plain and self.instances > 1 else plain

    @property
    def plain(self) -> bool:
        """Whether it consists of fields as they are."""
        return self.kind in (KeyKind.FIELD, KeyKind.FIELDS)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts of a key; "key" for a key without names."""
        return self.fields or (("key", INSTANCE) if self.instances > 1 else ("key",))

    @property
    def shown(self) -> tuple[str, ...]:
        """The parts that results have: none for the key of everything."""
        return () if self.kind is KeyKind.ALL and self.instances == 1 else self.parts

    def naming(self) -> Callable[[Key], dict[str, Any]]:
        """A function from a key to the fields of a result that hold it."""
        names, nulls = self.shown, self.nulls

        def named(key: Key) -> dict[str, Any]:
            values = key if isinstance(key, tuple) and len(names) > 1 else (key,)
            if nulls:
                values = tuple([None if value == NULL else value for value in values])
            return dict(zip(names, values, strict=False))

        return named


OWN_KEY = KeySpec(KeyKind.RECORD)
"""The key that the producer gave."""
