"""MIME archives in `spec.userData` are accepted as by Go's reader, and losses are refused.

The expected parts are what `mime/multipart` of Go 1.26 returned for the same text, unless a comment
says otherwise.
"""

from __future__ import annotations

import pytest

from karpenter_core.errors import BadInputError, LaunchFailedError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_provider_aws.families.mime_parts import mime_parts
from providers.aws.tests.discovery.moto_world import HandClock
from providers.aws.tests.launch.processes import ON_DEMAND, SPOT, Process, claim_of, node_class_of

HEAD = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="BOUNDARY"\n\n'
SHELL = "Content-Type: text/x-shellscript\n"
CONFIG = "Content-Type: application/node.eks.aws\n"
ECHO = ("text/x-shellscript", "echo 1")
YAML = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet: {}"

ACCEPTED = {
    "well formed": (f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY--\n", [ECHO]),
    "closing line without dashes": (f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY\n", [ECHO]),
    "the same without a newline": (f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY", [ECHO]),
    "no newline at the end": (f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY--", [ECHO]),
    "header without content at the end": (
        f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY\n{SHELL}",
        [ECHO],
    ),
    "only a header": (f"--BOUNDARY\n{SHELL}", []),
    "empty content": (f"--BOUNDARY\n{SHELL}\n--BOUNDARY--\n", [("text/x-shellscript", "")]),
    "no parts": ("", []),
    "only the closing line": ("--BOUNDARY--\n", []),
    "text before": (f"hello\n--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY--\n", [ECHO]),
    "text behind": (f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARY--\nbye\n", [ECHO]),
    "spaces behind the boundary": (f"--BOUNDARY  \n{SHELL}\necho 1\n--BOUNDARY-- \n", [ECHO]),
    "carriage returns": (f"--BOUNDARY\r\n{SHELL}\r\necho 1\r\n--BOUNDARY--\r\n", [ECHO]),
    "a longer word than the boundary": (
        f"--BOUNDARY\n{SHELL}\necho 1\n--BOUNDARYX\n--BOUNDARY--\n",
        [("text/x-shellscript", "echo 1\n--BOUNDARYX")],
    ),
    "a header over two lines": (
        '--BOUNDARY\nContent-Type: text/x-shellscript;\n charset="us-ascii"\n\necho 1\n--BOUNDARY--',
        [('text/x-shellscript; charset="us-ascii"', "echo 1")],
    ),
    "an archive in an archive": (
        '--BOUNDARY\nContent-Type: multipart/mixed; boundary="B"\n\n--B\n--B--\n--BOUNDARY--\n',
        [('multipart/mixed; boundary="B"', "--B\n--B--")],
    ),
    "quoted-printable": (
        f"--BOUNDARY\n{SHELL}Content-Transfer-Encoding: quoted-printable\n\necho =31\n--BOUNDARY--",
        [ECHO],
    ),
    # Go leaves the content of this one encoded.
    "base64": (
        f"--BOUNDARY\n{SHELL}Content-Transfer-Encoding: base64\n\nZWNobyAx\n--BOUNDARY--",
        [ECHO],
    ),
    # Go takes YAML for further headers, and refuses or loses it.
    "YAML without a blank line before it": (
        f"--BOUNDARY\n{CONFIG}{YAML}\n--BOUNDARY--\n",
        [("application/node.eks.aws", YAML)],
    ),
    "the same before a blank line": (
        f"--BOUNDARY\n{CONFIG}{YAML}\n\n--BOUNDARY--\n",
        [("application/node.eks.aws", f"{YAML}\n")],
    ),
    # Go refuses these; cloud-init reads them so.
    "a script without a blank line before it": (
        f"--BOUNDARY\n{SHELL}#!/bin/bash\necho 1\n--BOUNDARY--\n",
        [("text/x-shellscript", "#!/bin/bash\necho 1")],
    ),
    "a part with no header": (
        "--BOUNDARY\necho 1\n--BOUNDARY--\n",
        [('text/x-shellscript; charset="us-ascii"', "echo 1")],
    ),
}


@pytest.mark.parametrize(("body", "expected"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_an_archive_is_read_as_gos_reader_reads_it(body, expected):
    found = mime_parts(HEAD + body)

    assert [(part.content_type, part.content) for part in found] == expected


def test_headers_of_cloud_init_stay_with_their_part():
    (part,) = mime_parts(f"{HEAD}--BOUNDARY\n{SHELL}Merge-Type: list()\n\necho 1\n--BOUNDARY--\n")

    assert part.headers == (("Merge-Type", "list()"),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{HEAD}--BOUNDARY\n{SHELL}\necho 1\n", r"--BOUNDARY--"),
        (f"{HEAD}  --BOUNDARY\n  {SHELL}\n  echo 1\n  --BOUNDARY--\n", "indented"),
        (f"{HEAD}--BOUNDARY\n {SHELL}\necho 1\n--BOUNDARY--\n", "begins with a space"),
        (HEAD.replace('; boundary="BOUNDARY"', ""), "boundary"),
        (HEAD.rstrip("\n") + "\n--BOUNDARY\n", "blank line"),
        ("Content-Type: text/plain\n\nhello\n", "text/plain"),
        (
            f"{HEAD}--BOUNDARY\n{SHELL}Content-Transfer-Encoding: base64\n\nZ\n--BOUNDARY--",
            "base64",
        ),
    ],
    ids=["cut off", "indented", "header indented", "no boundary", "no body", "one part", "base64"],
)
def test_an_archive_whose_text_would_be_lost_is_refused_with_the_cause(text, named):
    with pytest.raises(BadInputError, match=named) as raised:
        mime_parts(text)

    assert str(raised.value).startswith("spec.userData")


@pytest.mark.parametrize(
    "user_data",
    [
        f"{HEAD}--BOUNDARY\n{CONFIG}\n{YAML}\n--BOUNDARY\n",
        f"{HEAD}--BOUNDARY\n{CONFIG}{YAML}\n--BOUNDARY--\n",
    ],
    ids=["closing line without dashes", "no blank line behind the header"],
)
def test_an_al2023_instance_launches_with_such_an_archive(aws, clients, user_data):
    process = Process(aws, clients, HandClock())
    node_class = node_class_of(aws, clients, userData=user_data)

    outcome = process.launch_one(claim_of("archived", ON_DEMAND), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert YAML in aws.instance(outcome.provider_id).user_data.decode()


def test_a_launch_with_an_archive_that_is_refused_fails_until_the_user_mends_it(aws, clients):
    """Claims of every capacity type; nothing is sent."""
    process = Process(aws, clients, HandClock())
    node_class = node_class_of(aws, clients, userData=f"{HEAD}--BOUNDARY\n{SHELL}\necho 1\n")
    claims = (claim_of("a", ON_DEMAND), claim_of("b", ON_DEMAND), claim_of("c", SPOT))

    outcomes = process.launch(*claims, node_class=node_class)

    assert [type(outcome) for outcome in outcomes] == [LaunchFailedError] * 3
    assert {outcome.reason for outcome in outcomes} == {"InstanceTypeResolutionFailed"}
    assert all("spec.userData" in str(outcome) for outcome in outcomes)
