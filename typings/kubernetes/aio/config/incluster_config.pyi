from kubernetes.aio.client import Configuration

SERVICE_TOKEN_FILENAME: str

def load_incluster_config(client_configuration: Configuration) -> None: ...
