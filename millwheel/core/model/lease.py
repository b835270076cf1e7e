"""The fence: whether a message with a lease token still counts.

A shard has one owner at a time. The range table gives every owner a higher token than all owners
before it, and every message of an owner carries its token. A worker that was declared dead may be
alive (a **zombie**), and news of a new owner reaches different workers at different times. So a
receiver compares the token of a message with its own entry of the lease:

| the token is | its sender is | what to do |
|---|---|---|
| the same | the owner | accept it |
| lower | a former owner, perhaps a zombie | refuse it: its messages no longer hold |
| higher | an owner newer than the receiver's entry | wait, or refuse: it may be the zombie |

Journals need no token: the seal fences them (docs/design/fencing.md). Tokens are compared nowhere
but here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # commands read range tables, and must not wait for numpy
    import numpy as np
    from numpy.typing import NDArray

    _Longs = NDArray[np.int64]
    _Bools = NDArray[Any]


class Lease(NamedTuple):
    """The ownership of one shard, as the receiver was last informed."""

    token: int

    @property
    def is_first(self) -> bool:
        """Whether the shard had no owner before, nor had any shard from which it was split."""
        return self.token == 1

    def admits(self, token: int) -> bool:
        """Whether ``token`` is that of this very owner."""
        return token == self.token

    def outlived(self, token: int) -> bool:
        """Whether ``token`` is that of a former owner."""
        return token < self.token

    def is_behind(self, token: int) -> bool:
        """Whether ``token`` is that of a later owner, so that this lease has ended, even if the
        owner of this one has not noticed."""
        return token > self.token


class Leases(NamedTuple):
    """:class:`Lease` for many shards at once: ``tokens`` has one token for each, in the order of
    the arguments."""

    tokens: _Longs

    def admit(self, tokens: _Longs) -> _Bools:
        """Which of ``tokens`` are those of the present owners."""
        same: _Bools = tokens == self.tokens
        return same

    def are_behind(self, tokens: _Longs) -> _Bools:
        """Which of ``tokens`` are those of later owners."""
        later: _Bools = tokens > self.tokens
        return later
