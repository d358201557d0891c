from alibabacloud_credentials.client import Client

class Config:
    def __init__(
        self,
        *,
        credential: Client,
        region_id: str,
        endpoint: str | None,
        protocol: str,
        connect_timeout: int,
        read_timeout: int,
        max_idle_conns: int,
        user_agent: str,
    ) -> None: ...
