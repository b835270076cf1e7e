"""How a client of a gateway finds the token of the run."""

from __future__ import annotations

from urllib.parse import urlsplit

from millwheel.errors import SetupError


def token_for(url: str, root: str = "") -> str:
    """What to show to the gateway at ``url``, from the root of the run; "" for none. Without ``root`` only a gateway on
    this machine is shown anything, of the only run in ``.millwheel``.

    Raises SetupError when ``root`` is given and has no run.
    """
    from millwheel.adapters.grpc.security import is_loopback, load_security
    from millwheel.roots.attaching import find_root
    from millwheel.roots.root import read_run

    parts = urlsplit(url)
    if not root and not is_loopback(parts.hostname or ""):
        return ""
    try:
        run = read_run(find_root(root))
    except SetupError:
        if root:
            raise
        return ""
    if run is None and root:
        raise SetupError(f"{root} is not the root of a run: give the --root of its `millwheel run`")
    known = load_security(run.security, "client") if run is not None else None
    if known is None:
        return ""
    return known.token if parts.scheme == "https" else known.proof(f":{parts.port or 80}")
