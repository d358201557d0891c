from collections.abc import Awaitable, Callable, Mapping

from kubernetes.aio.client import Configuration

class KubeConfigLoader:
    cert_file: str
    key_file: str
    token: str
    load_from_exec_plugin: Callable[[], Awaitable[bool]]
    def __init__(self, config_dict: Mapping[str, object]) -> None: ...
    async def load_and_set(self, client_configuration: Configuration) -> None: ...
