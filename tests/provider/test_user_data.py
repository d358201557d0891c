"""User data is parsed into parts and written as a MIME archive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.user_data import (
    SHELL_SCRIPT,
    UserDataPart,
    mime_archive,
    user_data_parts,
)
from tests.properties import with_examples


def test_a_script_becomes_one_part():
    assert user_data_parts("#!/bin/sh\r\necho hello\r\n") == (
        UserDataPart(content_type=SHELL_SCRIPT, content="#!/bin/sh\necho hello\n"),
    )
    assert user_data_parts(" \n") == ()


def test_an_archive_is_written_to_the_byte():
    parts = user_data_parts("echo 1") + user_data_parts("a: 1", content_type="text/cloud-config")
    assert mime_archive(parts) == (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        '--//\nContent-Type: text/x-shellscript; charset="us-ascii"\n\necho 1\n'
        "--//\nContent-Type: text/cloud-config\n\na: 1\n--//--\n"
    )


lines = st.one_of(
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20),
    st.sampled_from(["--//", "--//--", "--karpenter-1", "--karpenter-2--"]),
)
scripts = st.lists(lines, min_size=1, max_size=4).map("\n".join)


@given(st.lists(scripts, min_size=1, max_size=3))
@with_examples(100)
def test_an_archive_is_read_back_as_it_was_written(contents):
    parts = tuple(UserDataPart(content_type=SHELL_SCRIPT, content=text) for text in contents)
    assert user_data_parts(mime_archive(parts)) == parts


def test_parts_of_an_archive_may_be_encoded_and_need_not_be_ascii():
    plain = "Content-Type: text/x-shellscript\n\necho größer"
    encoded = "Content-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\nZWNobyBncsO2w59lcg=="
    for text in (plain, encoded):
        (part,) = user_data_parts(text)
        assert part.content == "echo größer"


def test_headers_of_a_user_data_part_are_kept():
    text = (
        'Content-Type: multipart/mixed; boundary="B"\nMIME-Version: 1.0\n\n'
        "--B\nMIME-Version: 1.0\nContent-Type: text/cloud-config\nMerge-Type: list(append)\n"
        "Content-Transfer-Encoding: 7bit\n\na: 1\n--B--\n"
    )
    (part,) = user_data_parts(text)
    assert part.headers == (("Merge-Type", "list(append)"),)
    assert "Content-Type: text/cloud-config\nMerge-Type: list(append)\n\na: 1" in mime_archive(
        [part]
    )


def test_an_archive_without_its_end_is_refused_by_field():
    text = mime_archive(user_data_parts("echo 1")).removesuffix("\n--//--\n")
    with pytest.raises(
        BadInputError,
        match=r"^spec\.userData is no MIME archive: .* not the corresponding close boundary",
    ):
        user_data_parts(text)


@pytest.mark.parametrize("line", ["--//", "--//--", "--// ", "--//more", "--karpenter-1"])
def test_a_line_of_a_part_is_not_taken_for_the_boundary(line):
    """Whatever reads archives: some compare the beginning of a line only."""
    content = f"#!/bin/sh\n--//\n{line}\necho end\n"
    parts = (
        UserDataPart(content_type=SHELL_SCRIPT, content=content),
        UserDataPart(content_type=SHELL_SCRIPT, content="echo last\n"),
    )

    text = mime_archive(parts)

    assert [part.content.strip() for part in user_data_parts(text)] == [
        content.strip(),
        "echo last",
    ]
    boundary = text.split('boundary="', 1)[1].split('"', 1)[0]
    assert text.count(f"\n--{boundary}") == 3
    assert mime_archive(parts) == text
