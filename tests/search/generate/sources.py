"""Draws the streams that are pushed to, with the options of their sources."""

from __future__ import annotations

import random
from typing import Any

from tests.search.freedoms import Facts
from tests.search.generate.draft import Draft, Flow


def add_ids(draft: Draft, seed: int) -> None:
    """Ids for records in columns, sometimes, with a random generator of their own: all else stays as it is without
    them."""
    own_rng = random.Random(f"ids {seed}")
    for options in draft.tree["streams"].values():
        if draft.columnar and "fields" in options and (own_rng.random() < 0.35 or "id" in draft.wanted):
            options["fields"]["id"] = "str"
            options["id"] = {"field": "id", "horizon": own_rng.choice(["30s", "2m", "1h"])}
            draft.features.add("id")


def leave_fields_undeclared(draft: Draft, seed: int) -> None:
    """Streams that are read into columns declare no fields, sometimes, with a random generator of their own. Keys that
    are divided and dictionaries need declared ones."""
    own_rng = random.Random(f"undeclared {seed}")
    if not draft.columnar or "dictionary" in draft.features:
        return
    if own_rng.random() < 0.3 or "undeclared" in draft.wanted:
        for options in draft.tree["streams"].values():
            options.pop("fields", None)
        draft.features.add("undeclared")


def draw_stream(draft: Draft, name: str, now: int | None) -> None:
    rng, options = draft.rng, dict[str, Any](source={"injection": {}})
    options["timestamp"] = draft.pick(["at", "at", "at", {"field": "at", "unit": "ms"}, "callbacks:stamp"])
    typed = not draft.columnar and draft.chance(0.1, "schema")
    if draft.columnar:
        draft.features.add("columns")
        options["fields"] = {"at": "int", "k": "str", "u": "int", "n": "int"}
        options["timestamp"] = draft.pick(["at", {"field": "at", "unit": "ms"}])
    elif typed:
        options["schema"], options["timestamp"] = "callbacks:Hit", "at"
    elif draft.chance(0.3, "fields"):
        options["fields"] = {"at": "int", "k": "str", "u": "int", "n": "int"}
        if options["timestamp"] == "callbacks:stamp":
            options["timestamp"] = "at"
    if not draft.columnar and draft.chance(0.35, "id"):
        options["id"] = {"field": "id", "horizon": draft.pick(["30s", "2m", "1h"])}
    watermark: dict[str, Any] = {}
    if not draft.stated:
        watermark["max_delay"] = draft.pick(["0s", "5s", "20s"])
        watermark["idle_after"] = draft.pick(["5s", "20s", "never", "never"])
        if watermark["idle_after"] != "never":
            draft.features.add("idle_after")
    if now is not None:
        watermark["max_future"] = draft.pick(["1m", "5m", "never"])
        if watermark["max_future"] != "never":
            draft.features.add("max_future")
    if watermark:
        options["watermark"] = watermark
    draft.tree["streams"][name] = options
    facts = Facts(paced=draft.stated)
    draft.flows[name] = Flow(name, frozenset({"at", "k", "u", "n", "id"}), facts, None, typed)
    rng.random()
