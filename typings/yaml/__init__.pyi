# The part of PyYAML that we use. The stubs that pyright has leave nodes, events and values untyped.

from collections.abc import Callable, Iterable, Iterator, Mapping
from re import Pattern
from typing import Self, TypeVar

from yaml import constructor as constructor
from yaml.error import Mark as Mark
from yaml.error import MarkedYAMLError as MarkedYAMLError
from yaml.error import YAMLError as YAMLError

_Value = TypeVar("_Value")

class Token:
    start_mark: Mark
    end_mark: Mark

class DirectiveToken(Token): ...
class DocumentStartToken(Token): ...

class Event:
    start_mark: Mark
    end_mark: Mark

class DocumentStartEvent(Event): ...

class NodeEvent(Event):
    anchor: str | None

class AliasEvent(NodeEvent): ...

class ScalarEvent(NodeEvent):
    tag: str | None
    implicit: tuple[bool, bool]
    value: str

class CollectionStartEvent(NodeEvent):
    tag: str | None

class SequenceStartEvent(CollectionStartEvent): ...
class MappingStartEvent(CollectionStartEvent): ...
class CollectionEndEvent(Event): ...
class SequenceEndEvent(CollectionEndEvent): ...
class MappingEndEvent(CollectionEndEvent): ...

class Node:
    tag: str
    start_mark: Mark  # None in a node that was not read
    end_mark: Mark

class ScalarNode(Node):
    value: str
    style: str | None
    def __init__(
        self,
        tag: str,
        value: str,
        start_mark: Mark | None = None,
        end_mark: Mark | None = None,
        style: str | None = None,
    ) -> None: ...

class CollectionNode(Node):
    flow_style: bool | None

class SequenceNode(CollectionNode):
    value: list[Node]
    def __init__(
        self,
        tag: str,
        value: list[Node],
        start_mark: Mark | None = None,
        end_mark: Mark | None = None,
        flow_style: bool | None = None,
    ) -> None: ...

class MappingNode(CollectionNode):
    value: list[tuple[Node, Node]]
    def __init__(
        self,
        tag: str,
        value: list[tuple[Node, Node]],
        start_mark: Mark | None = None,
        end_mark: Mark | None = None,
        flow_style: bool | None = None,
    ) -> None: ...

class SafeLoader(constructor.SafeConstructor):
    yaml_implicit_resolvers: Mapping[str, list[tuple[str, Pattern[str]]]]
    def __init__(self, stream: str) -> None: ...
    def check_node(self) -> bool: ...
    def get_node(self) -> Node: ...
    def resolve(self, kind: type[Node], value: str, implicit: tuple[bool, bool]) -> str: ...

class CSafeLoader(SafeLoader): ...

class SafeDumper:
    def __init__(
        self, stream: str, *, default_flow_style: bool = ..., sort_keys: bool = ...
    ) -> None: ...
    @classmethod
    def add_representer(
        cls,
        data_type: type[_Value],
        representer: Callable[[Self, _Value], Node],
    ) -> None: ...
    def ignore_aliases(self, data: object) -> bool: ...
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None: ...
    def represent_data(self, data: object) -> Node: ...

def scan(stream: str, Loader: type[SafeLoader]) -> Iterator[Token]: ...
def parse(stream: str, Loader: type[SafeLoader]) -> Iterator[Event]: ...
def compose(stream: str, Loader: type[SafeLoader]) -> Node: ...
def compose_all(stream: str, Loader: type[SafeLoader]) -> Iterator[Node | None]: ...
def load(stream: str, Loader: type[SafeLoader]) -> object: ...
def safe_load(stream: str) -> object: ...
def serialize(node: Node, *, Dumper: type[SafeDumper], allow_unicode: bool, width: int) -> str: ...
def dump(
    data: object,
    *,
    Dumper: type[SafeDumper],
    allow_unicode: bool = ...,
    default_flow_style: bool = ...,
    explicit_start: bool = ...,
    sort_keys: bool = ...,
    width: float = ...,
) -> str: ...
def safe_dump_all(documents: Iterable[object], *, sort_keys: bool = ...) -> str: ...
