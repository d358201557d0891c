from alibabacloud_credentials.models import Config
from alibabacloud_credentials.provider.oidc import OIDCRoleArnCredentialsProvider

class Client:
    def __init__(
        self,
        config: Config | None = None,
        provider: OIDCRoleArnCredentialsProvider | None = None,
    ) -> None: ...
