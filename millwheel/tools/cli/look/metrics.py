"""``millwheel metrics``: what the driver of a run serves at ``/metrics``."""

from __future__ import annotations

import sys

from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.metrics.fetching import METRICS, fetched
from millwheel.control.roots.attaching import attach
from millwheel.errors import UnavailableError
from millwheel.launch.metrics import DRIVER, driver_address
from millwheel.tools.cli.look.chosen import chosen_root


def metrics(root_address: str) -> None:
    """Print the metrics of all processes, in Prometheus' format, on standard output."""
    root = chosen_root(root_address)
    run = attach(root)
    address = driver_address(root)
    if not address:
        raise UnavailableError(
            f"The driver of {root} does not serve metrics yet; ask again in a second"
        )
    texts = fetched({DRIVER: address}, METRICS, load_security(run.security, "client"))
    if DRIVER not in texts:
        raise UnavailableError(f"The driver does not answer at {address}; ask again in a second")
    sys.stdout.write(texts[DRIVER])
