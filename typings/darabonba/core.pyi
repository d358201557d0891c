from requests import Session
from requests.adapters import HTTPAdapter

class DaraCore:
    _sessions: dict[str, Session]
    @staticmethod
    def get_adapter(prefix: str, *, pool_size: int) -> HTTPAdapter: ...
