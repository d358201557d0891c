"""Write `data/network_limits.json`: interface facts that no public API has.

How many branch interfaces a trunk carries is known only from the table that Amazon's VPC resource
controller ships. Its source is given as a file:

    go mod download -json github.com/aws/amazon-vpc-resource-controller-k8s@latest   # names `Dir`
    python providers/aws/tools/make_network_limits.py $Dir/pkg/aws/vpc/limits.go
"""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parents[1] / "karpenter_provider_aws" / "data"

_ENTRY: Final = re.compile(r'^\t"([^"]+)": \{(.*?)^\t\}', re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(
    r"^\t\t(IPv4PerInterface|IsTrunkingCompatible|BranchInterface): +(\w+)", re.MULTILINE
)
_WRITTEN: Final = re.compile(r"generated at (\d{4}-\d{2}-\d{2})")


def limits_of(source: str) -> dict[str, object]:
    """Return the document: by type, [IPv4 addresses per interface, branch interfaces].

    Types that cannot carry a trunk have no branch interfaces.
    """
    types: dict[str, list[int]] = {}
    for name, body in _ENTRY.findall(source):
        fields = dict(_FIELD.findall(body))
        trunk = fields["IsTrunkingCompatible"] == "true"
        branches = int(fields["BranchInterface"]) if trunk else 0
        types[name] = [int(fields["IPv4PerInterface"]), branches]
    written = _WRITTEN.search(source)
    return {"as_of": written[1] if written else "", "types": dict(sorted(types.items()))}


if __name__ == "__main__":
    document = limits_of(Path(sys.argv[1]).read_text(encoding="utf-8"))
    text = json.dumps(document, separators=(",", ":"))
    (DATA / "network_limits.json").write_text(f"{text}\n", encoding="utf-8")
