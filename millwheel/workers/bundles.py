"""How much a turn takes. Pure."""

from __future__ import annotations


class BundleSize:
    """Where little that comes makes much that goes, turns take less, so that no commit is far too large. All numbers
    are weights; ``most`` is what the next turn may take."""

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle
        self.most = bundle

    def learn(self, taken: int, made: int) -> None:
        """A turn took and made so much."""
        if made > self._bundle and made > taken:
            self.most = max(taken * self._bundle // made, 1)
        elif taken and self.most < self._bundle:
            self.most = min(self.most * 2, self._bundle)
