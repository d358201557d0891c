from collections.abc import Awaitable, Callable

from kubernetes.aio.client import Configuration

class ConfigNode:
    value: object
    def __contains__(self, key: str) -> bool: ...
    def __getitem__(self, key: str) -> ConfigNode: ...

class KubeConfigMerger:
    config: ConfigNode
    def __init__(self, paths: str) -> None: ...

class KubeConfigLoader:
    cert_file: str
    key_file: str
    token: str
    load_from_exec_plugin: Callable[[], Awaitable[bool]]
    def __init__(
        self,
        config_dict: ConfigNode,
        active_context: str | None = None,
        *,
        config_base_path: str | None,
    ) -> None: ...
    async def load_and_set(self, client_configuration: Configuration) -> None: ...
