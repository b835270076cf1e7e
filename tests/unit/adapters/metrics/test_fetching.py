from __future__ import annotations

import socket

from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.metrics.fetching import fetched


def test_processes_that_do_not_answer_are_left_out() -> None:
    endpoint = Endpoint("127.0.0.1:0", None, {"/metrics": lambda: b"up 1\n"})
    endpoint.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{free.getsockname()[1]}"
        found = fetched(
            {"here": endpoint.address, "gone": gone, "odd": "nowhere:x"}, "/metrics", None
        )
    assert found == {"here": "up 1\n"}
    assert fetched({"here": endpoint.address}, "/none", None) == {}
    assert fetched({}, "/metrics", None) == {}
    endpoint.close()
