"""Sinks: where results go. ``base`` is the contract, the built-in kinds are rows of
``connect/built_in.py``.

A third party's kind is an entry point of the group ``millwheel.sinks``, called as
``factory(options, folder)``.
"""

from __future__ import annotations

from millwheel.adapters.secret_values import revealed
from millwheel.connect.built_in import SINKS
from millwheel.connect.plug_ins import made_by, names_in
from millwheel.connect.sinks.adapter import as_sink
from millwheel.connect.sinks.base import Sink
from millwheel.core.pipeline.spec import SinkSpec

_GROUP = "millwheel.sinks"


def known_sinks() -> list[str]:
    """The names that may stand below a stream in ``sinks:``, sorted."""
    return sorted({*SINKS, *names_in(_GROUP)})


def build_sink(spec: SinkSpec, folder: str, identity: str = "") -> Sink:
    """The sink that a spec describes. Relative paths are relative to ``folder``; ``identity`` names
    the run's root.

    Raises ValueError, with a sentence, for options that cannot work, SetupError for a secret that
    has no value here.
    """
    options = revealed(spec.options)
    own = SINKS.get(spec.kind)
    sink: Sink = (
        as_sink(made_by(_GROUP, "sink", spec.kind, known_sinks, options, folder))
        if own is None
        else own.built(options, folder=folder)
    )
    sink.identity = identity
    return sink
