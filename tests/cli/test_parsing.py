"""Text is parsed as by a parser that sees every key, however fast."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from karpenter_core.cli import parsing
from karpenter_core.cli.manifests import manifest_text
from karpenter_core.cli.parsing import read_documents
from karpenter_core.errors import BadInputError

_TEXTS = st.text(alphabet='"\\:a{,é', max_size=4)
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXTS
)  # fmt: skip


class _Pairs(list):
    """The keys and values of an object as they are written; keys may be there twice."""


_WRITTEN = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(_TEXTS, inner), max_size=3).map(_Pairs),
    ),
    max_leaves=12,
)
_SPACES = st.sampled_from(["", " ", "\n\t"])


def _text(value: object, space: str, *, ascii_only: bool) -> str:
    if isinstance(value, _Pairs):
        pairs = (
            f"{json.dumps(key, ensure_ascii=ascii_only)}{space}:{_text(inner, space, ascii_only=ascii_only)}"
            for key, inner in value
        )
        return "{" + f"{space},".join(pairs) + "}"
    if isinstance(value, list):
        return f"[{','.join(_text(inner, space, ascii_only=ascii_only) for inner in value)}{space}]"
    return json.dumps(value, ensure_ascii=ascii_only)


def _is_duplicated(value: object) -> bool:
    if isinstance(value, _Pairs):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(_is_duplicated(inner) for _, inner in value)
    return isinstance(value, list) and any(map(_is_duplicated, value))


@given(st.lists(st.tuples(_TEXTS, _WRITTEN), max_size=4).map(_Pairs), _SPACES, st.booleans())
@example(_Pairs([("a\\", 1), ("a\\", 2)]), "", True)
@example(_Pairs([('"', 1), ('"', '":')]), "", True)
@example(_Pairs([("a", _Pairs([("b", 1), ("b", 2)]))]), " ", False)
def test_json_has_the_value_of_its_text_and_refuses_duplicate_keys(pairs, space, ascii_only):
    text = _text(pairs, space, ascii_only=ascii_only)
    if _is_duplicated(pairs):
        with pytest.raises(BadInputError, match="is duplicated in one object"):
            read_documents("cluster.json", text)
    else:
        (document,) = read_documents("cluster.json", text)
        assert json.dumps(document) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1} {"b": 2}',
        '{"a": NaN}',
        '{"a": 1e400}',
        r'{"a": "\ud800"}',
        '{"a": 123456789012345678901234567890}',
        r'{"a\\": "\\\":"}',
    ],
)
def test_text_that_the_fast_parser_refuses_is_parsed_all_the_same(text):
    decoder, position, wanted = json.JSONDecoder(), 0, []
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        wanted.append(document)
        position += 1
    assert repr(read_documents("cluster.json", text)) == repr(wanted)


def test_documents_of_an_api_server_need_no_second_parser(monkeypatch):
    pod = {
        "metadata": {"annotations": {"last": '{"kind":"Pod","a":"<b>"}'}},
        "spec": {"hostPID": True},
    }
    text = json.dumps({"kind": "List", "items": [pod, pod]}, indent=4).replace("<", "\\u003c")
    monkeypatch.setattr(parsing, "_json_documents", None)
    assert read_documents("cluster.json", text) == [{"kind": "List", "items": [pod, pod]}]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"a": ' + "9" * 5000 + "}", "a.json: is not JSON that can be read: Exceeds"),
        ("a.yaml", "a: " + "9" * 5000, f'a.yaml: line 1: "{"9" * 60}..." is no value of tag'),
        ("a.yaml", "a: !!bool x", 'a.yaml: line 1: "x" is no value of tag'),
        ("a.yaml", "a: !!int ''", 'a.yaml: line 1: "" is no value of tag'),
    ],
)
def test_a_value_that_python_cannot_convert_is_named(name, text, message):
    """The message is short, however long the value is."""
    with pytest.raises(BadInputError) as error:
        read_documents(name, text)

    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_has_the_encodings_that_kubectl_reads(tmp_path, encoding):
    """PowerShell writes `kubectl get -o yaml > FILE` in UTF-16."""
    file = tmp_path / "pods.yaml"
    file.write_bytes("kind: Pod # \u00fc\r\n".encode(encoding))
    _, text = manifest_text(file)
    assert read_documents("pods.yaml", text) == [{"kind": "Pod"}]
