class Mark:
    index: int
    line: int
    column: int

class YAMLError(Exception): ...

class MarkedYAMLError(YAMLError):
    problem: str | None
    problem_mark: Mark | None
    def __init__(
        self,
        context: str | None = None,
        context_mark: Mark | None = None,
        problem: str | None = None,
        problem_mark: Mark | None = None,
    ) -> None: ...
