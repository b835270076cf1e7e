"""For other programs: records into a running pipeline, each once (docs/injection.md)."""

from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.client.injector import AsyncInjector, Injector

__all__ = ["AsyncInjector", "InjectionResult", "Injector"]
