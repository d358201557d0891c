class OIDCRoleArnCredentialsProvider:
    def __init__(
        self,
        *,
        role_arn: str,
        oidc_provider_arn: str,
        oidc_token_file_path: str,
        role_session_name: str,
        sts_region_id: str,
        enable_vpc: bool,
    ) -> None: ...
    def get_provider_name(self) -> str: ...
