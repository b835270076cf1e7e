"""The base class of sinks for other systems: derive from it, and from :class:`.ExternalTarget`."""

from __future__ import annotations

from abc import abstractmethod

from millwheel.connect.connectors.external.absence import LONGEST_WAIT_S, BackOff, absence_of
from millwheel.connect.connectors.external.target import ExternalTarget, Owner
from millwheel.connect.connectors.external.writer import ExternalWriter
from millwheel.connect.sinks.base import Sink
from millwheel.errors import SetupError


class ExternalSink(Sink):
    """A sink whose rows stay in the journal until a target has accepted them. ``where`` names the
    target in sentences, without secrets: ``PostgreSQL at db:5432``. ``longest_wait_s`` bounds the
    wait between two tries to write to a target that is away."""

    cut_records = 2_000
    where: str = "the target"
    longest_wait_s: float = LONGEST_WAIT_S

    @abstractmethod
    def target(self, owner: Owner) -> ExternalTarget:
        """The target for one owner of a shard. It connects when it is first used, not here."""

    def open(self, shard: str, token: int) -> ExternalWriter:
        if not self.identity:
            raise SetupError(
                f"the sink of {shard} does not know its root: what two runs write to {self.where}"
                " would be taken for the same. Set the attribute 'identity' of the sink before"
                " open()"
            )
        name = f"{self.identity}/{shard}"
        return ExternalWriter(
            self.target(Owner(name, token)),
            name,
            absence_of(self.where),
            BackOff(self.longest_wait_s),
            self.where,
        )
