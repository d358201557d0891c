from collections.abc import Mapping

class AlibabaCloudException(Exception):
    code: str | None
    data: Mapping[str, object] | None
    message: str | None
    request_id: str | None
    retry_after: int | None
    status_code: int | None
